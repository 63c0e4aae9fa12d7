"""A large backlog is swept in parts by one command: each part is a sweep of its own, settled before
the next one begins.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from duesweep.core import policy
from duesweep.core.account import SweepReport
from duesweep.core.errors import LedgerError, StoreError
from duesweep.core.result import exit_code_of
from duesweep.ledger.ledger import Ledger
from duesweep.operations import look
from duesweep.stores.due import Slices
from duesweep.stores.sql_due import SqlDue
from duesweep.stores.sql_sweeps import SqlSweeps
from duesweep.stores.sweeps import SweepRun
from duesweep.sweep import backlog, in_process, settle
from duesweep.sweep import sweep as pipeline
from duesweep.sweep.slice import Slice
from duesweep.sweep.spark import SparkEngine
from duesweep.sweep.stop import Stop
from support.endpoint import ON_BOTH_SERVERS, Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep
from support.trials.armed import dying

_PART = 10
_COUNTS = (
    *("found", "claimed", "dispatched", "failed", "exhausted", "skipped", "gone"),
    *("eligible_later", "held", "left", "over_limit", "bytes"),
)


_LAST_KEY_FIRST = """
UPDATE {delayed} d SET due = d.due - n * interval '1 second'
FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM {delayed}) numbered
WHERE numbered.id = d.id
"""


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (policy, in_process, look, backlog):
        monkeypatch.setattr(module, "MOST_IN_A_SWEEP", _PART)


def _load(endpoint: Endpoint[Any], count: int) -> list[str]:
    endpoint.set_up("Billing")
    return endpoint.delay_many(count)


def _sweep(endpoint: Endpoint[Any], stop: Stop | None = None, **settings: object) -> SweepReport:
    return run_sweep(endpoint, stop=stop, sweep__batch_rows=1, **settings)


def _check_each_once(endpoint: Endpoint[Any], ledger: LedgerReader, keys: Sequence[str]) -> None:
    arrived = [row.message_id for row in endpoint.queue_rows("Billing")]
    assert len(arrived) == len(set(arrived)) == len(keys)
    assert sorted(row.message_key for row in ledger.rows("tombstones")) == sorted(keys)
    assert endpoint.waiting() == []
    assert endpoint.fetch("SELECT FROM duesweep_sweeps") == []


def _check_sums(report: SweepReport, ledger: LedgerReader) -> None:
    rows = {row.sweep_id: row for row in ledger.rows("sweeps")}
    parts = [rows[sweep_id] for sweep_id in report.sweep_ids]
    assert report.sweep_id == report.sweep_ids[-1]
    assert {name: getattr(report, name) for name in _COUNTS} == {
        name: sum(getattr(row, name) for row in parts) for name in _COUNTS
    }
    assert len({row.horizon for row in parts}) == 1


@ON_BOTH_SERVERS
def test_backlog_is_swept_whole_by_one_command(
    endpoint: Endpoint[Any], ledger: LedgerReader
) -> None:
    keys = _load(endpoint, 43)
    # Messages with one Due are parted too.
    assert len(endpoint.fetch(f"SELECT DISTINCT due FROM {endpoint.delayed}")) == 1

    report = _sweep(endpoint)

    assert (report.found, report.dispatched, report.outcome) == (43, 43, "done")
    assert exit_code_of(report) == 0
    assert sorted(row.found for row in ledger.rows("sweeps")) == [3, 10, 10, 10, 10]
    _check_sums(report, ledger)
    _check_each_once(endpoint, ledger, keys)


def test_command_tells_the_sums_once(endpoint: Endpoint, ledger: LedgerReader) -> None:
    keys = _load(endpoint, 25)

    ran = endpoint.run("sweep", "--json", sweep__batch_rows=1)

    assert (ran.code, ran.document["dispatched"], ran.document["exit_code"]) == (0, 25, 0)
    rows = sorted(ledger.rows("sweeps"), key=lambda row: row.start)
    assert ran.document["sweep_ids"] == [row.sweep_id for row in rows]
    assert len(rows) == 3
    _check_each_once(endpoint, ledger, keys)


def test_backlog_is_planned_once_and_the_journal_holds_one_part(
    endpoint: Endpoint, ledger: LedgerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = _load(endpoint, 30)
    planned, held = [], []
    plan, settle_last = SqlDue.plan, pipeline.settle_last

    def plan_once(*arguments: Any) -> Slices:
        planned.append(arguments)
        return plan(*arguments)

    def settle(*arguments: Any, **named: Any) -> SweepReport:
        held.append(endpoint.fetch("SELECT sum(dispatched) FROM duesweep_journal")[0][0])
        return settle_last(*arguments, **named)

    monkeypatch.setattr(SqlDue, "plan", plan_once)
    monkeypatch.setattr(pipeline, "settle_last", settle)

    _sweep(endpoint)

    assert (len(planned), held) == (1, [10, 10, 10])
    _check_each_once(endpoint, ledger, keys)


def test_parts_are_swept_on_spark_with_all_cores(
    spark: SparkSession, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    keys = _load(endpoint, 23)
    settings = {"sweep__slices": 2, "sweep__batch_rows": 1}

    report = run_sweep(endpoint, SparkEngine(spark), **settings)

    assert (report.found, report.dispatched, report.outcome) == (23, 23, "done")
    assert len(report.sweep_ids) == 3
    _check_sums(report, ledger)
    _check_each_once(endpoint, ledger, keys)


@pytest.mark.parametrize("point", ["before Sweeps.open", "after Journal.delete_settled"])
def test_driver_that_dies_between_two_parts_leaves_the_rest_to_the_next_sweep(
    point: str, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    keys = _load(endpoint, 30)
    with dying(point, 2):
        _sweep(endpoint)
    swept = ledger.count("tombstones")
    assert 0 < swept < 30

    rest = _sweep(endpoint)

    assert (rest.found, rest.outcome) == (30 - swept, "done")
    _check_each_once(endpoint, ledger, keys)


def test_stop_between_two_parts_ends_after_the_part(
    endpoint: Endpoint, ledger: LedgerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = _load(endpoint, 30)
    stop, settle_last = Stop(), pipeline.settle_last

    def ask(*arguments: Any, **named: Any) -> SweepReport:
        stop.ask()
        return settle_last(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "settle_last", ask)
        stopped = _sweep(endpoint, stop)

    assert (stopped.found, stopped.dispatched, stopped.left) == (30, 10, 20)
    assert (stopped.outcome, stopped.reason, exit_code_of(stopped)) == ("stopped", None, 0)
    assert [row.outcome for row in ledger.rows("sweeps")] == ["done"]
    _sweep(endpoint)
    _check_each_once(endpoint, ledger, keys)


def test_time_of_the_command_stops_all_parts(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    _load(endpoint, 30)
    context = endpoint.context(sweep__batch_rows=1)
    clock, settle_last = context.world.clock, pipeline.settle_last
    end = clock.now().timestamp() + 3_600
    stop = Stop(end)

    def wait(*arguments: Any, **named: Any) -> SweepReport:
        report = settle_last(*arguments, **named)
        monkeypatch.setattr(stop, "_at", 0.0)
        return report

    monkeypatch.setattr(pipeline, "settle_last", wait)
    stopped = run_sweep(context, stop=stop)

    assert (stopped.dispatched, stopped.left, stopped.outcome) == (10, 20, "stopped")


@pytest.mark.parametrize(("most", "sweeps"), [(3, 1), (10, 1), (13, 2), (29, 3), (30, 3)])
def test_number_of_messages_is_a_limit_of_the_command(
    most: int, sweeps: int, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    keys = sorted(_load(endpoint, 30), reverse=True)
    endpoint.execute(_LAST_KEY_FIRST.format(delayed=endpoint.delayed))

    report = _sweep(endpoint, Stop(most=most))

    assert (report.found, report.claimed, report.left) == (30, most, 30 - most)
    assert report.outcome == ("done" if most == 30 else "stopped")
    assert len(report.sweep_ids) == sweeps
    assert exit_code_of(report) == 0
    _check_sums(report, ledger)
    assert {row.message_key for row in ledger.rows("tombstones")} == set(keys[:most])


def test_number_of_exhausted_messages_is_a_limit_of_the_command(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up()
    endpoint.delay_many(30, ["Nowhere"])

    report = _sweep(endpoint, retry__max_attempts=1, retry__max_exhausted_per_sweep=14)

    assert (report.found, report.exhausted, report.over_limit, report.failed) == (30, 14, 16, 16)
    assert [(each.count, "Nowhere" in each.reason) for each in report.failures] == [(30, True)]
    assert (report.outcome, exit_code_of(report), len(report.sweep_ids)) == ("failures", 3, 3)
    assert ledger.count("errors") == 14
    _check_sums(report, ledger)


def _without_ledger(*_: object, **__: object) -> None:
    raise LedgerError("No space left on device", transient=True)


def test_ledger_that_fails_holds_up_no_message_until_the_journal_is_full(
    endpoint: Endpoint, ledger: LedgerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = _load(endpoint, 50)
    _sweep(endpoint, Stop(most=10))
    monkeypatch.setattr(settle, "MOST_UNSETTLED_MESSAGES", 20)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "write_sweep", _without_ledger)
        report = _sweep(endpoint)

    assert (report.found, report.dispatched, report.left) == (40, 20, 20)
    assert (report.outcome, exit_code_of(report)) == ("incomplete", 4)
    assert "The journal of" in str(report.ledger_error)
    assert "is full: it holds 20 messages" in str(report.reason)
    done = _sweep(endpoint)
    assert (done.dispatched, done.ledger_error, exit_code_of(done)) == (20, None, 0)
    _check_each_once(endpoint, ledger, keys)


def test_ledger_that_comes_back_has_all_parts(
    endpoint: Endpoint, ledger: LedgerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = _load(endpoint, 30)
    write, failures = Ledger.write_sweep, [True]

    def write_later(*arguments: Any, **named: Any) -> None:
        if failures and failures.pop():
            _without_ledger()
        write(*arguments, **named)

    monkeypatch.setattr(Ledger, "write_sweep", write_later)
    report = _sweep(endpoint)

    assert (report.dispatched, report.ledger_error, exit_code_of(report)) == (30, None, 0)
    _check_each_once(endpoint, ledger, keys)


def test_store_that_is_lost_in_a_later_part_leaves_word_of_the_earlier_ones(
    endpoint: Endpoint, ledger: LedgerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = _load(endpoint, 30)
    open_sweep, opened = SqlSweeps.open, []

    def fail_later(*arguments: Any, **named: Any) -> SweepRun:
        if opened:
            raise StoreError("The store is out of reach", transient=True)
        opened.append(open_sweep(*arguments, **named))
        return opened[0]

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(SqlSweeps, "open", fail_later)
        with pytest.raises(StoreError, match="out of reach"):
            _sweep(endpoint, breaker__trigger_seconds=1)

    (told,) = (entry for entry in logs if entry["event"] == "backlog_ends_early")
    assert (told["dispatched"], told["left"]) == (10, 20)
    assert told["sweep_ids"] == (str(opened[0].sweep_id),)
    _sweep(endpoint)
    _check_each_once(endpoint, ledger, keys)


def test_part_that_is_cut_short_ends_the_command(
    endpoint: Endpoint, ledger: LedgerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = _load(endpoint, 30)

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(Slice, "work", fail)
        report = _sweep(endpoint)

    assert (report.found, report.dispatched, report.left) == (30, 0, 30)
    assert (report.outcome, exit_code_of(report), len(report.sweep_ids)) == ("incomplete", 4, 1)
    assert "ZeroDivisionError" in str(report.reason)
    _sweep(endpoint)
    _check_each_once(endpoint, ledger, keys)


def test_destination_that_takes_nothing_does_not_hold_up_later_parts(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(20, ["Nowhere"])
    endpoint.delay_many(10)

    report = _sweep(endpoint)

    assert (report.found, report.dispatched, report.failed) == (30, 10, 20)
    assert len(endpoint.queue_rows("Billing")) == 10
    _check_sums(report, ledger)
