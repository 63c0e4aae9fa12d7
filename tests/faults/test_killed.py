"""Sweeps and their sessions that are killed or raced while they dispatch: each message once."""

import threading
from typing import Any

from pyspark.sql import SparkSession

from duesweep.core.account import SweepSummary
from duesweep.sweep.spark import SparkEngine
from support.endpoint import ON_BOTH_SERVERS, Endpoint
from support.faults.dead_sweeps import await_locks
from support.ledger_reader import LedgerReader
from support.sweeps import exit_code, run_sweep, sweep_at_once
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
        run_sweep(endpoint, sweep__batch_rows=50)
    await_locks(endpoint)

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
    # 0: a slice that loses its session ends. Otherwise it would go on with a new one.
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
    assert (exit_code(summary), summary.outcome) == (4, "incomplete")
    assert "terminat" in str(summary.reason) or "closed" in str(summary.reason)
    assert 1_000 <= summary.dispatched < 2_000
    assert summary.left == 2_000 - summary.dispatched
    assert run_sweep(config).dispatched == summary.left
    _check_each_once(endpoint, ledger, keys)
