"""duesweep from Python: the same work as the commands', as values."""

import ast
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import duesweep
from duesweep import Duesweep, DuesweepError, ErrorFilter, MessageFilter, Moment, load_config
from duesweep.core.change import CommandName
from support.commands import run_python
from support.endpoint import Endpoint

HOUR = 3_600
# The engine is chosen by whether a session of Spark is there.
pytestmark = pytest.mark.usefixtures("no_spark_session")


def _opened(endpoint: Endpoint, **settings: object) -> Duesweep:
    return Duesweep(load_config(endpoint.config_file(**settings)))


def test_sweep_returns_its_report_and_the_ledger_is_read_in_arrow(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    endpoint.delay("Billing")
    opened = _opened(endpoint)
    planned = opened.plan()

    run = opened.sweep()

    assert [(one.destination, one.eligible) for one in planned.destinations] == [("Billing", 1)]
    assert (planned.due, planned.eligible, planned.engine) == (1, 1, "in-process")
    assert (run.outcome, run.exit_code, run.error) == ("done", 0, None)
    assert run.report is not None
    assert (run.report.dispatched, run.report.failed) == (1, 0)
    assert opened.table("tombstones").column("destination").to_pylist() == ["Billing"]
    idle = opened.sweep()
    assert (idle.outcome, idle.report, idle.exit_code) == ("idle", None, 0)


def test_no_filter_has_to_be_meant_and_many_messages_need_a_reason(endpoint: Endpoint) -> None:
    endpoint.set_up()
    endpoint.delay_many(2, due_in_seconds=HOUR)
    opened = _opened(endpoint)

    with pytest.raises(DuesweepError, match="no messages are selected"):
        opened.cancel(MessageFilter(), reason="a test")
    with pytest.raises(DuesweepError, match="no messages are selected"):
        opened.choose(lambda _: MessageFilter())
    with pytest.raises(DuesweepError, match="No reason"):
        opened.cancel(MessageFilter(), everything=True)
    with pytest.raises(DuesweepError, match="either `to` or `by`"):
        opened.reschedule(MessageFilter(), to=Moment(), by=timedelta(), everything=True)
    with pytest.raises(DuesweepError, match="no table 'sweep'"):
        opened.table("sweep")
    with pytest.raises(DuesweepError, match="There is no table sweeps"):
        opened.table("sweeps")
    assert len(endpoint.waiting()) == 2


def test_choice_is_refused_by_another_command_than_that_it_was_made_for(
    endpoint: Endpoint,
) -> None:
    """A choice must not become another after it is printed: a replay delivers."""
    endpoint.set_up("Billing")
    endpoint.delay("Missing")
    opened = _opened(endpoint, retry__max_attempts=1)
    report = opened.sweep().report
    assert report is not None
    assert report.exhausted == 1
    endpoint.delay("Billing", due_in_seconds=HOUR)

    with pytest.raises(DuesweepError, match=r"for `errors replay`, not for `errors discard`"):
        opened.discard(opened.choose_errors(ErrorFilter(), everything=True))
    with pytest.raises(DuesweepError, match=r"for `cancel`, not for `reschedule`"):
        opened.reschedule(opened.choose(MessageFilter(destination="Billing")), to=Moment())

    assert [opened.error_groups().open, len(endpoint.waiting())] == [1, 1]


def test_choice_is_refused_by_another_endpoint_than_that_it_was_made_in(
    endpoint: Endpoint,
) -> None:
    """Else messages restored there would be restored here again."""
    endpoint.set_up("Billing")
    endpoint.delay("Missing")
    opened = _opened(endpoint, retry__max_attempts=1)
    assert opened.sweep().report is not None
    endpoint.delay("Billing", due_in_seconds=HOUR)
    waiting = MessageFilter(destination="Billing")
    cancelled = opened.cancel(opened.choose(waiting), reason="a test")
    endpoint.delay("Billing", due_in_seconds=HOUR)
    other = _opened(endpoint, store__name="another/source")

    with pytest.raises(DuesweepError, match="not in another/source"):
        other.cancel(opened.choose(waiting), reason="a test")
    with pytest.raises(DuesweepError, match="not in another/source"):
        other.replay(opened.choose_errors(ErrorFilter(), everything=True), reason="a test")
    with pytest.raises(DuesweepError, match="not in another/source"):
        other.restore(opened.choose_cancelled(command=cancelled.command_id))

    assert [opened.error_groups().open, len(endpoint.waiting())] == [1, 1]


def test_what_was_cancelled_is_seen_and_restored_and_a_pause_ends(endpoint: Endpoint) -> None:
    first, second = endpoint.set_up("Billing").delay_many(2, ["Billing"], due_in_seconds=HOUR)
    opened = _opened(endpoint)

    chosen = opened.choose(MessageFilter(destination="Billing"))
    cancelled = opened.cancel(chosen, reason="a test")
    known = opened.show(first)
    again = opened.choose_cancelled(command=cancelled.command_id)
    restored = opened.restore(again, reason="a test")

    assert (chosen.would_change, cancelled.changed, restored.changed) == (2, 2, 2)
    assert (known.messages, [event.what for event in known.history]) == (
        [],
        ["cancelled", "cancelled"],
    )
    assert opened.list().counts["in_1_h"] == len({first, second})
    assert [one.what for one in opened.pause("Bill*", reason="a test").pauses] == ["Bill*"]
    assert (opened.resume("Bill*").resumed, opened.paused().pauses) == (True, [])


def test_error_is_in_a_group_and_is_done_once(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay("Nowhere")
    opened = _opened(endpoint, retry__max_attempts=1)
    opened.sweep()

    (group,) = opened.error_groups(ErrorFilter(destination="Nowhere")).groups
    (error,) = opened.errors(ErrorFilter(group=group.group)).errors
    (whole,) = opened.show_errors(error.key).errors
    wanted = opened.choose_errors(ErrorFilter(), CommandName.DISCARD, everything=True)
    done, again = opened.discard(wanted), opened.discard(wanted)

    assert (group.open, error.state, whole.stack is not None) == (1, "open", True)
    assert (done.changed, done.exit_code) == (1, 0)
    assert (again.changed, again.gone) == (0, 1)


def test_overrides_win_over_the_file(endpoint: Endpoint) -> None:
    overrides = {"sweep.batch_rows": 8, "store.name": None}
    config = load_config(endpoint.config_file(sweep__batch_rows=7), overrides)

    assert (config.sweep.batch_rows, config.store.name) == (8, None)


def test_import_loads_nothing_and_unknown_names_are_refused() -> None:
    done = run_python("-c", "import sys, duesweep; print(*sys.modules)")

    assert done.code == 0
    assert {name for name in done.out.split() if name.startswith("duesweep.")} == set()
    assert {"Duesweep", "load_config"} <= set(dir(duesweep))
    with pytest.raises(AttributeError, match="no attribute 'Sweeper'"):
        duesweep.Sweeper  # noqa: B018 - as a user would


NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
TOMORROW = 86_400


@pytest.mark.usefixtures("no_spark_session")
def test_cells_return_what_the_notebook_shows(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    endpoint.set_up("Billing", "Reminders.Mail")
    endpoint.delay_many(3, ["Billing"])
    endpoint.delay("Archive")
    endpoint.delay_many(2, ["Reminders.Mail"], due_in_seconds=TOMORROW)
    # A queue that is missing is found at once.
    file = endpoint.config_file(retry__max_attempts=1)
    monkeypatch.chdir(file.parent)
    assert file.name == "duesweep.toml"

    names: dict[str, Any] = {}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    shown = [cell["outputs"] for cell in cells]
    for number, cell in enumerate(cells, 1):
        cell["execution_count"] = number
        cell["outputs"] = _run("".join(cell["source"]), names, number)

    if os.environ.get("DUESWEEP_WRITE_PAGES"):
        NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
    assert len(cells) > 5
    assert [cell["outputs"] for cell in cells] == shown


def _run(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Run a cell as a notebook does: it shows the value of its last line."""
    *lines, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        exec(source, names)
        return []
    exec(compile(ast.Module(lines, []), "cell", "exec"), names)
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    text = repr(value).splitlines(keepends=True)
    return [
        {
            "data": {"text/plain": text},
            "execution_count": number,
            "metadata": {},
            "output_type": "execute_result",
        }
    ]


def test_results_are_the_documents_of_commands_and_show_themselves_in_notebooks(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing").delay_many(2, ["Billing", "<b>Nowhere</b>"])
    endpoint.delay("Billing", due_in_seconds=HOUR)
    opened = _opened(endpoint, retry__max_attempts=1)
    given = {"retry__max_attempts": 1}

    setup, plan, sweep = opened.setup(), opened.plan(), opened.sweep()
    named = ErrorFilter(destination="<b>Nowhere</b>")
    results: dict[str, Any] = {
        "list": opened.list(),
        "errors list": opened.error_groups(),
        "audit": opened.audit(),
        "paused": opened.paused(),
        "doctor --no-spark": opened.doctor(with_spark=False),
        "setup": setup,
    }
    for command, result in results.items():
        document = json.loads(json.dumps(result.to_dict()))
        printed = endpoint.run(*command.split(), "--json", **given).document
        assert set(document) == set(printed), command
        if command != "setup":
            same = {name for name in document if document[name] == printed[name]}
            assert set(document) - same <= {"now", "findings", "counts", "total", "messages"}
    others = [
        *(plan, sweep, opened.sweep(), opened.errors(), opened.status(), opened.maintain()),
        *(opened.choose(MessageFilter(destination="B*")), opened.choose_errors(named)),
        *(opened.cancel(MessageFilter(destination="B*")), opened.show(message_id="none")),
        *(opened.discard(named), opened.show_errors("none"), opened.resume("B*")),
    ]

    assert sweep.to_dict()["exhausted"] == 1
    for result in (*results.values(), *others):
        json.dumps(result.to_dict())
        shown = result._repr_html_()
        assert shown.startswith("<style>"), result
        assert "<b>" not in shown, result
    assert "&lt;b&gt;Nowhere" in results["errors list"]._repr_html_()


def test_listings_are_tables_of_arrow_with_the_same_columns_if_they_are_empty(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing").delay("Nowhere")
    endpoint.delay("Billing", due_in_seconds=HOUR)
    opened = _opened(endpoint, retry__max_attempts=1)
    opened.sweep()
    opened.pause("B*", reason="a test")
    nothing = ErrorFilter(destination="Other")

    full = [opened.list(), opened.errors(), opened.error_groups(), opened.paused()]
    empty = [
        opened.list(MessageFilter(destination="Other")),
        *(opened.errors(nothing), opened.error_groups(nothing), opened.resume("B*")),
    ]

    for one, other in zip(full, empty, strict=True):
        table = one.to_arrow()
        assert (table.num_rows, other.to_arrow().num_rows) == (1, 0)
        assert other.to_arrow().schema.field(0) == table.schema.field(0)
        assert other.to_arrow().column_names == table.column_names
    listed = full[0].to_arrow()
    assert str(listed.schema.field("due").type) == "timestamp[us, tz=UTC]"
    assert listed.column("destination").to_pylist() == ["Billing"]


def test_configuration_may_be_a_mapping(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    endpoint.set_up("Billing").delay("Billing")
    monkeypatch.chdir(tmp_path)
    given = {
        "store": {"dsn": endpoint.dsn, "endpoint": endpoint.name, "schema": endpoint.schema},
        "ledger": {"root": "./own"},
        "sweep": {"allow_destinations": ["Billing"]},
    }

    report = Duesweep(load_config(given, {"sweep.batch_rows": 5})).sweep().report

    assert report is not None
    assert report.dispatched == 1
    assert (tmp_path / "own" / "sweeps").is_dir()
    with pytest.raises(DuesweepError) as refused:
        load_config({"store": {"dns": endpoint.dsn}, "ledger": {"root": "./own"}})
    text = str(refused.value)
    assert "There is no setting store.dns; did you mean store.dsn?" in text
    assert (endpoint.dsn in text, "in " + str(tmp_path) in text) == (False, False)
