"""Commands on a ledger with a damaged file, or on a file system that Delta cannot commit to."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable

from support.commands import ROOT, run_program
from support.endpoint import Endpoint
from support.sweeps import run_sweep

_TEXTS = Path(__file__).parents[1] / "unit" / "ledger" / "delta_rs_errors.json"
_READERS = (
    ("audit",),
    ("errors", "list"),
    ("report", "--out", "{folder}/report.html"),
    ("report", "--json"),
    ("show", "{key}"),
    ("errors", "show", "{key}"),
    ("errors", "replay", "--all", "--yes", "--reason", "x"),
    ("maintain",),
    ("plan",),
    ("list",),
    ("sweep",),
    ("restore", "{key}"),
)


def _newest_commit(table: Path) -> Path:
    return sorted((table / "_delta_log").glob("*.json"))[-1]


def _newest_data(table: Path) -> Path:
    return max(table.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)


_DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty commit": lambda table: _newest_commit(table).write_bytes(b""),
    "torn commit": lambda table: _newest_commit(table).write_bytes(b'{"add":{"pa'),
    "empty data": lambda table: _newest_data(table).write_bytes(b""),
    "missing data": lambda table: _newest_data(table).unlink(),
}


@pytest.mark.parametrize(
    ("damage", "table"),
    # The effect of a damage does not depend on the table; the commands that read it do.
    [*((damage, "tombstones") for damage in _DAMAGES)]
    + [("torn commit", table) for table in ("errors", "sweeps")],
)
def test_no_command_ends_in_a_traceback_over_a_damaged_file(
    damage: str, table: str, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing").delay("Nowhere")
    endpoint.delay("Billing")
    run_sweep(endpoint, retry__max_attempts=1)
    (key,) = [row.message_key for row in endpoint.ledger.rows("errors")]
    _DAMAGES[damage](endpoint.ledger.root / table)
    folder = str(endpoint.folder)

    for command in _READERS:
        ran = endpoint.run(*(part.format(folder=folder, key=key) for part in command))

        assert ran.code in {0, 2, 3, 4}, (command, ran.told)
        assert "Traceback" not in ran.err, command
        if ran.code in {2, 4}:
            assert f"{endpoint.ledger.root}/{table}" in ran.told, (command, ran.told)
    assert endpoint.run("audit").code == 2


def test_doctor_writes_a_table_and_names_the_cause_if_that_fails(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.set_up("Billing").delay("Billing")
    before = sorted(endpoint.folder.rglob("*"))
    assert "small table" not in endpoint.run("doctor", "--no-spark").err
    assert sorted(endpoint.folder.rglob("*")) == before
    run_sweep(endpoint)
    texts = json.loads(_TEXTS.read_text(encoding="utf-8"))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(texts["no hard links 95"])

    monkeypatch.setattr(DeltaTable, "create", refuse)
    found = endpoint.run("doctor", "--no-spark")

    assert found.code == 3
    assert "Unable to rename file: Operation not supported (os error 95)" in found.told
    assert "has to have hard links" in " ".join(found.told.split())
    assert not list(endpoint.ledger.root.glob("duesweep_trial*"))


def test_doctor_leaves_spark_s_ledger_out_without_spark(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")

    found = endpoint.run("doctor", "--no-spark", "--json", ledger__writer="spark").document

    (ledger,) = [one for one in found["findings"] if one["check"] == "ledger"]
    assert ledger["severity"] == "skipped"


def test_report_is_not_well_if_errors_lacks_exhausted_messages(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay("Nowhere")
    run_sweep(endpoint, retry__max_attempts=1)
    endpoint.run("errors", "discard", "--all", "--yes", "--reason", "x")
    page = str(endpoint.folder / "report.html")
    lost = "the ledger has lost 1 exhausted message of the last sweeps"
    assert lost not in endpoint.run("report", "--out", page).told

    DeltaTable(endpoint.ledger.root / "errors").delete()

    assert lost in endpoint.run("report", "--out", page).told


_CLOSED: dict[str, Callable[[Path], Sequence[Path]]] = {
    "root": lambda root: [root],
    "table": lambda root: [root / "tombstones"],
    "log": lambda root: [root / "tombstones" / "_delta_log"],
    "commits": lambda root: [*(root / "tombstones" / "_delta_log").glob("*.json")],
}
_EACH_COMMAND = """import json, sys
from support.commands import run
*words, file = sys.argv[1:]
ran = [run(*word.split(), "--config", file) for word in words]
print(json.dumps([[each.code, each.told] for each in ran]))
"""


@pytest.mark.parametrize("closed", _CLOSED)
def test_ledger_of_another_user_is_not_taken_for_one_that_is_gone(
    closed: str, endpoint: Endpoint
) -> None:
    """As a sweeper's with umask 077 is to the person on call. To free the journal from it, as from
    one that is gone, would be a loss.
    """
    endpoint.set_up("Billing").delay("Billing")
    run_sweep(endpoint)
    for path in _CLOSED[closed](endpoint.ledger.root):
        path.chmod(0)
    commands = ("audit", "errors list", "report --json", "plan")

    # Root may read all files, as long as it has these two.
    lesser = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all"]
    ran = run_program(
        *(lesser if os.getuid() == 0 else ()),
        *(sys.executable, "-c", _EACH_COMMAND, *commands, endpoint.config_file()),
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'lib'}:{ROOT / 'tests'}"},
    )

    assert ran.code == 0, ran.told
    audit, listed, report, plan = json.loads(ran.out.splitlines()[-1])
    assert (audit[0], listed[0], report[0], plan[0]) == (2, 2, 0, 0), ran.out
    for _, told in (audit, listed, report):
        assert "Permission denied" in told
        assert "Traceback" not in told
        assert "--rebind" not in told
        assert "backup" not in told
