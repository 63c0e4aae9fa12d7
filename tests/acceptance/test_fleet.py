"""Several endpoints with one command."""

from pathlib import Path
from typing import Any

import pytest

from duesweep.operations.opening import open_endpoint
from duesweep.operations.run import run_all
from duesweep.stores.sql_due import SqlDue
from duesweep.sweep.stop import Stop
from support.commands import run, run_on_shell
from support.endpoint import ON_BOTH_SERVERS, Endpoint
from support.waiting import until
from support.watcher import watching

_NAMES = ("Sales", "Billing", "Shipping")
pytestmark = ON_BOTH_SERVERS


@pytest.fixture
def endpoints(endpoint: Endpoint) -> list[Endpoint]:
    """Three endpoints of one database, with 1, 2 and 3 due messages."""
    found = [endpoint.named(name) for name in _NAMES]
    for number, each in enumerate(found, 1):
        each.set_up("Mails")
        each.delay_many(number, ["Mails"])
    return found


def _fleet(endpoint: Endpoint, *entries: str, **overrides: object) -> str:
    """A file of the three, and of the endpoints that these lines of TOML describe."""
    three = [f'store.endpoint = "{name}"' for name in _NAMES]
    return str(endpoint.fleet_file(*three, *entries, **overrides))


def _down(endpoint: Endpoint, name: str = "Down") -> str:
    """An endpoint whose server is out of reach."""
    return f'store = {{endpoint = "{name}", dsn = "{endpoint.server.unreached}"}}'


def _by_name(document: dict[str, Any]) -> dict[str, Any]:
    return {name: each for each in document["sources"] for name in _NAMES if name in each["source"]}


def test_all_are_swept_with_an_account_each_and_the_sums_of_all(
    endpoint: Endpoint, endpoints: list[Endpoint]
) -> None:
    done = run("sweep", "--config", _fleet(endpoint), "--json")

    assert (done.code, done.err) == (0, "")
    document = done.document
    assert document["exit_code"] == 0
    assert (document["total"]["endpoints"], document["total"]["dispatched"]) == (3, 6)
    counts = {name: each["dispatched"] for name, each in _by_name(document).items()}
    assert counts == {"Sales": 1, "Billing": 2, "Shipping": 3}
    assert {row.source: row.dispatched for row in endpoint.ledger.rows("sweeps")} == {
        each["source"]: each["dispatched"] for each in document["sources"]
    }
    assert [each.waiting() for each in endpoints] == [[], [], []]
    again = run("sweep", "--config", _fleet(endpoint))
    assert again.code == 0
    assert "All 3 endpoints: dispatched 0 of 0 due messages" in again.out


@pytest.mark.usefixtures("endpoints")
def test_one_that_is_out_of_reach_or_misconfigured_costs_only_itself(endpoint: Endpoint) -> None:
    down = [_down(endpoint, f"Down{i}") for i in range(5)]

    done = run("sweep", "--config", _fleet(endpoint, *down))
    assert done.code == 4
    assert done.err.count(f"duesweep: nothing/{endpoint.schema}.Down") == 5
    assert "All 8 endpoints: dispatched 6 of 6 due messages" in done.out
    assert "5 with problems" in done.out
    assert endpoint.ledger.count("tombstones") == 6

    wrong = 'store.endpoint = "Wrong"\nsweep.slizes = 3'
    document = run("sweep", "--json", "-c", _fleet(endpoint, wrong, *down)).document
    assert document["exit_code"] == 2
    errors = [each["error"] for each in document["sources"] if each["outcome"] == "error"]
    assert len(errors) == 6
    assert [error for error in errors if "slizes" in error]


def test_plan_of_one_passes_over_messages_that_its_look_found_held_back(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be a million, and each step of a plan would look at them again."""
    endpoint.set_up("Billing").delay("Billing")
    seen: list[bool] = []
    plan = SqlDue.plan_at_once

    def noted(due: SqlDue, horizon: Any, slicing: Any, most: int) -> Any:
        seen.append(horizon.since is not None)
        return plan(due, horizon, slicing, most)

    monkeypatch.setattr(SqlDue, "plan_at_once", noted)

    [(_, run)] = run_all([open_endpoint(endpoint.config())], Stop())

    assert run.report is not None
    assert (run.report.dispatched, seen) == (1, [True])


def test_message_without_a_queue_is_one_endpoints_affair(
    endpoint: Endpoint, endpoints: list[Endpoint]
) -> None:
    endpoints[0].delay("Nowhere")

    document = run("sweep", "--json", "-c", _fleet(endpoint)).document

    assert document["exit_code"] == 3
    codes = {name: each["exit_code"] for name, each in _by_name(document).items()}
    assert codes == {"Sales": 3, "Billing": 0, "Shipping": 0}


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "document"])
def test_messages_that_are_kept_though_out_of_attempts_are_told_with_their_endpoint(
    endpoint: Endpoint, endpoints: list[Endpoint], options: tuple[str, ...]
) -> None:
    endpoints[0].delay_many(3, ["Nowhere"])
    file = _fleet(endpoint, retry__max_attempts=1, retry__max_exhausted_per_sweep=1)

    done = run("sweep", *options, "-c", file)

    assert done.code == 3
    (told,) = done.err.splitlines()
    source = next(row.source for row in endpoint.ledger.rows("sweeps") if row.over_limit)
    assert told.startswith(f"duesweep: {source}: 2 messages out of attempts, but kept in the store")


@pytest.mark.usefixtures("endpoints")
def test_plan_and_doctor_take_several_too(endpoint: Endpoint) -> None:
    file = _fleet(endpoint, _down(endpoint))

    planned = run("plan", "--config", file, "--json")
    assert planned.code == 4
    document = planned.document
    assert [each.get("eligible") for each in document["sources"]] == [1, 2, 3, None]
    told = [line for line in planned.err.splitlines() if line.startswith("duesweep: ")]
    assert len(told) == 1
    assert "Down" in told[0]

    examined = run("doctor", "--no-spark", "--config", file)
    assert examined.code == 3
    assert examined.out.count("== ") == 4

    chosen = run("list", "--config", file, "--endpoint", "Billing", "--json")
    assert (chosen.code, chosen.document["total"]) == (0, 2)


@pytest.mark.long
def test_much_is_swept_on_spark_and_the_rest_in_process(
    endpoint: Endpoint, endpoints: list[Endpoint]
) -> None:
    for each in endpoints[1:]:
        each.delay_many(500, ["Mails"])

    done = run_on_shell("sweep", "-c", _fleet(endpoint, sweep__spark_from=100), "--json")

    assert done.code == 0, done.err
    engines = {name: each["engine"] for name, each in _by_name(done.document).items()}
    assert engines == {"Sales": "in-process", "Billing": "spark", "Shipping": "spark"}
    assert endpoint.ledger.count("tombstones") == 1_006
    assert [each.waiting() for each in endpoints] == [[], [], []]


def test_watcher_of_several_serves_them_all_and_one_that_fails_costs_only_itself(
    endpoint: Endpoint, endpoints: list[Endpoint]
) -> None:
    wrong = 'store.endpoint = "Wrong"\nsweep.slizes = 3'
    with watching(Path(_fleet(endpoint, wrong)), "--port", "0") as watcher:
        for each in endpoints:
            each.delay("Mails", due_in_seconds=1)
        until(lambda: not any(each.waiting() for each in endpoints))
        until(lambda: sum(one["dispatched"] for one in watcher.health()[1]["sources"]) == 9)
        status, health = watcher.health()
        assert watcher.end() == 2

    *good, failed = health["sources"]
    assert (status, health["is_well"], failed["is_well"]) == (503, False, False)
    assert "slizes" in failed["error"]
    assert all(each["is_well"] for each in good)

    assert "slizes" in watcher.events("not_watched")[0]["error"]


@pytest.mark.usefixtures("endpoints")
def test_endpoint_whose_tables_come_later_is_watched_then(endpoint: Endpoint) -> None:
    late = endpoint.named("Late")
    with watching(Path(_fleet(endpoint, 'store.endpoint = "Late"')), "--port", "0") as watcher:

        def error() -> str | None:
            found: str | None = watcher.health()[1]["sources"][-1]["error"]
            return found

        until(lambda: error() is not None)
        late.set_up("Mails").delay("Mails")
        until(lambda: not late.waiting())
        until(lambda: error() is None and watcher.health()[0] == 200)
        assert watcher.end() == 0

    assert "Late" in watcher.events("trouble")[0]["source"]
