"""Sweeps and their sessions that are killed or raced while they dispatch: each message once."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from duesweep.core.account import SweepSummary
from duesweep.core.errors import ExitCode
from duesweep.core.policy import Slicing
from duesweep.core.result import exit_code_of
from duesweep.stores.due import Horizon, Slices
from duesweep.stores.sql_due import SqlDue
from duesweep.stores.task import Forwarded
from duesweep.sweep import spark as engine_module
from duesweep.sweep.batch import BatchEnd, Batches, Form
from duesweep.sweep.spark import SparkEngine
from support.endpoint import ON_BOTH_SERVERS, Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep, sweep_at_once
from support.trials.armed import dying
from support.waiting import until

# The stand-in for SQL Server lets two claims have one row; the later one is repeated, or cut.
_ROUNDS = 10


def _check_each_once(endpoint: Endpoint[Any], ledger: LedgerReader, keys: list[str]) -> None:
    arrived = [row.message_id for row in endpoint.queue_rows("Billing")]
    assert len(arrived) == len(set(arrived)) == len(keys)
    assert endpoint.waiting() == []
    assert sorted(row.message_key for row in ledger.rows("tombstones")) == sorted(keys)
    rows = ledger.rows("sweeps")
    for row in rows:
        others = row.skipped + row.gone + row.eligible_later
        assert row.found == row.claimed + others + row.left
        assert row.claimed == row.dispatched + row.failed + row.exhausted
    assert sum(row.dispatched for row in rows) == len(keys)


def test_driver_that_dies_while_it_dispatches_leaves_the_rest_to_the_next_sweep(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    keys = endpoint.delay_many(1_000)
    with dying("before COMMIT of TaskSession.transaction", 10):
        run_sweep(endpoint, sweep__batch_rows=50, sweep__slices=1)

    summary = run_sweep(endpoint)

    (abandoned,) = [row for row in ledger.rows("sweeps") if row.outcome == "abandoned"]
    assert (abandoned.dispatched, summary.dispatched) == (9 * 50, 1_000 - 9 * 50)
    assert abandoned.skipped == abandoned.gone == abandoned.eligible_later == 0
    _check_each_once(endpoint, ledger, keys)


@ON_BOTH_SERVERS
def test_two_sweeps_at_once_move_each_message_once(
    endpoint: Endpoint[Any], ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    keys = endpoint.delay_many(2_000)

    sweep_at_once(endpoint.context(sweep__batch_rows=100), 2)
    for _ in range(_ROUNDS):
        if endpoint.waiting():
            run_sweep(endpoint, sweep__slices=1)

    _check_each_once(endpoint, ledger, keys)


def test_slice_whose_session_is_killed_is_cut_and_the_others_finish(
    spark: SparkSession, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    keys = endpoint.delay_many(2_000)
    # 0: a slice that loses its session ends. Otherwise it would continue with a new one.
    config = endpoint.config(sweep__batch_rows=20, sweep__slices=2, breaker__trigger_seconds=0)
    summaries: list[SweepSummary] = []
    sweeping = threading.Thread(
        target=lambda: summaries.append(run_sweep(config, SparkEngine(spark)))
    )
    sweeping.start()
    # One session that is just dispatching, and no other.
    until(
        lambda: endpoint.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_locks"
            " WHERE relation = $1::regclass AND mode = 'RowExclusiveLock' LIMIT 1",
            '"Billing"',
        )
    )
    sweeping.join(timeout=600)

    (summary,) = summaries
    assert (exit_code_of(summary), summary.outcome) == (4, "incomplete")
    assert "terminat" in str(summary.reason) or "closed" in str(summary.reason)
    assert 1_000 <= summary.dispatched < 2_000
    assert summary.left == 2_000 - summary.dispatched
    assert run_sweep(config).dispatched == summary.left
    _check_each_once(endpoint, ledger, keys)


def test_other_slices_go_on_and_the_sweep_is_closed_with_the_reason(
    endpoint: Endpoint, ledger: LedgerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.set_up("Billing")
    keys = endpoint.delay_many(30)
    plan, forms = SqlDue.plan, Batches.forms

    def plan_three(session: SqlDue, horizon: Horizon, *_: object) -> Slices:
        return plan(session, horizon, Slicing(3))

    def forms_with_a_defect(batches: Batches, **batch: bool) -> Iterator[Form]:
        form = next(forms(batches, **batch))

        def run(batch: Sequence[Forwarded]) -> BatchEnd | None:
            if any(key.startswith(keys[0]) for group in batch for key in group.keys):
                raise ZeroDivisionError("a defect")
            return form(batch)

        yield run

    with monkeypatch.context() as patch:
        patch.setattr(SqlDue, "plan_at_once", plan_three)
        patch.setattr(Batches, "forms", forms_with_a_defect)
        cut = run_sweep(endpoint)

    assert (cut.outcome, exit_code_of(cut)) == ("incomplete", ExitCode.WORK_LEFT)
    assert (cut.found, cut.dispatched, cut.left) == (30, 20, 10)
    assert cut.reason == (
        "An unexpected error ended a slice: ZeroDivisionError: a defect; please report this, with "
        "the log"
    )
    rest = run_sweep(endpoint)
    assert (rest.outcome, rest.dispatched) == ("done", 10)
    assert ledger.count("tombstones") == len(endpoint.queue_rows("Billing")) == 30


# A thousand keys to a row, so four rows for each of two slices.
MESSAGES = 8_000
# Ends the session that reads this row, as an administrator or a time-out would, in as many of the
# runs of its task as the sequence has numbers left.
_END_SESSION = """
SELECT slice, claim_keys, sizes, total
FROM (SELECT q.*, row_number() OVER (PARTITION BY slice) AS number FROM ({query}) q) numbered
WHERE slice <> 0 OR number <> {row} OR nextval('public.kills') > {kills}
   OR pg_terminate_backend(pg_backend_pid())
"""


@pytest.fixture
def swept(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Endpoint:
    """An endpoint with due messages; each row of keys is fetched by itself."""
    monkeypatch.setattr(engine_module, "_FETCH_ROWS", 1)
    endpoint.set_up("Billing", "Shipping")
    endpoint.delay_many(MESSAGES, ("Billing", "Shipping"))
    endpoint.execute("CREATE SEQUENCE kills")
    return endpoint


def end_session(monkeypatch: pytest.MonkeyPatch, row: int, kills: int) -> None:
    plan = SqlDue.plan

    def cut(session: SqlDue, horizon: Horizon, slicing: Slicing) -> Slices:
        planned = plan(session, horizon, slicing)
        query = _END_SESSION.format(query=planned.claim_keys_query, row=row, kills=kills)
        return replace(planned, claim_keys_query=query)

    monkeypatch.setattr(SqlDue, "plan", cut)


@pytest.mark.parametrize("row", [1, 4], ids=["first row", "last row"])
def test_slice_whose_keys_were_never_read_whole_is_left_and_the_sweep_is_incomplete(
    row: int,
    spark: SparkSession,
    swept: Endpoint,
    ledger: LedgerReader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = swept.config(sweep__slices=2)
    with monkeypatch.context() as patch:
        end_session(patch, row, kills=1_000)
        cut = run_sweep(config, SparkEngine(spark))

    assert (cut.outcome, exit_code_of(cut)) == ("incomplete", ExitCode.WORK_LEFT)
    assert cut.reason is not None
    assert "Spark ended the job" in cut.reason
    assert (cut.found, cut.skipped, cut.gone, cut.eligible_later) == (MESSAGES, 0, 0, 0)
    assert cut.found == cut.dispatched + cut.left
    assert cut.left == len(swept.waiting()) > 0

    rest = run_sweep(config, SparkEngine(spark))

    assert (rest.outcome, rest.dispatched) == ("done", cut.left)
    arrived = [row for queue in ("Billing", "Shipping") for row in swept.queue_rows(queue)]
    assert len(arrived) == MESSAGES
    assert swept.waiting() == []
    assert len({row.message_key for row in ledger.rows("tombstones")}) == MESSAGES
    assert len(ledger.rows("tombstones")) == MESSAGES


def test_slice_whose_second_run_reads_all_keys_is_complete(
    spark: SparkSession, swept: Endpoint, ledger: LedgerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_session(monkeypatch, row=3, kills=1)

    summary = run_sweep(swept, SparkEngine(spark), sweep__slices=2)

    assert swept.fetch("SELECT last_value FROM kills")[0].last_value >= 1
    assert (summary.outcome, summary.dispatched, summary.left) == ("done", MESSAGES, 0)
    assert (summary.skipped, summary.found) == (0, MESSAGES)
    assert swept.waiting() == []
    assert len(ledger.rows("tombstones")) == MESSAGES
