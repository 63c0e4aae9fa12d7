"""Drivers and database sessions killed while they work."""

import threading

import pytest
from pyspark.sql import SparkSession

from duesweep.stores.journal import SweepSummary
from duesweep.sweep.engines import Engine
from duesweep.sweep.spark import SparkEngine
from support.endpoint import Endpoint
from support.faults.dead_sweeps import await_end_of
from support.faults.failing_store import HOLD
from support.faults.processes import SweepProcess
from support.ledger_reader import LedgerReader
from support.sweeps import exit_code, run_sweep
from support.trials.armed import dying
from support.waiting import until

_SLICES = "SELECT FROM duesweep_journal WHERE kind = 'slice'"
_HELD = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND NOT granted"


def _kill_held(process: SweepProcess, endpoint: Endpoint, count: int) -> None:
    """Kill a sweep when so many of its sessions have come to their moment, however fast it is."""
    endpoint.fetch("SELECT pg_advisory_lock($1)", HOLD)
    process.await_ready()
    process.go()
    until(lambda: len(endpoint.fetch(_HELD, HOLD)) == count)
    process.kill()
    endpoint.fetch("SELECT pg_advisory_unlock($1)", HOLD)


@pytest.mark.usefixtures("points_in_workers")
def test_driver_that_dies_between_dispatch_and_settle_is_settled_by_the_next_sweep(
    engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(3_000)
    context = endpoint.context()
    with dying(context, "before DriverSession.close_sweep") as dying_context:
        run_sweep(dying_context, engine)
    await_end_of(context)
    assert len(endpoint.fetch(_SLICES)) == engine.slices(context.slices)
    assert len(endpoint.queue_rows("Billing")) == 3_000
    endpoint.delay_many(5)

    summary = run_sweep(context)

    assert (summary.dispatched, summary.outcome) == (5, "done")
    tombstones = ledger.rows("tombstones")
    assert len(tombstones) == len({row.message_key for row in tombstones}) == 3_005
    outcomes = {row.dispatched: row.outcome for row in ledger.rows("sweeps")}
    assert outcomes == {3_000: "abandoned", 5: "done"}


def test_driver_that_dies_while_it_dispatches_leaves_the_rest_to_the_next_sweep(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(1_000)
    context = endpoint.context(sweep__batch_rows=50)
    with dying(context, "before COMMIT of TaskSession.transaction", 10) as dying_context:
        run_sweep(dying_context)
    await_end_of(context)

    assert _sweep_the_rest(endpoint, ledger, 1_000) == 9 * 50


@pytest.mark.long
def test_driver_killed_with_its_jvm_while_it_dispatches_leaves_the_rest_to_the_next_sweep(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(20_000)
    process = SweepProcess.start(
        "local[2,4]", "held before COMMIT", 10, endpoint.config_file(sweep__batch_rows=50)
    )
    _kill_held(process, endpoint, 2)

    assert 0 < _sweep_the_rest(endpoint, ledger, 20_000) < 20_000


def _sweep_the_rest(endpoint: Endpoint, ledger: LedgerReader, messages: int) -> int:
    """How many of the messages the sweep that died had dispatched, by the ledger."""
    summary = run_sweep(endpoint)

    tombstones = ledger.rows("tombstones")
    assert len(tombstones) == len({row.message_key for row in tombstones}) == messages
    assert len(endpoint.queue_rows("Billing")) == messages
    (abandoned,) = [row for row in ledger.rows("sweeps") if row.outcome == "abandoned"]
    assert abandoned.dispatched + summary.dispatched == messages
    assert abandoned.found == abandoned.claimed + abandoned.left
    assert abandoned.skipped == abandoned.gone == abandoned.eligible_later == 0
    return int(abandoned.dispatched)


def test_slice_whose_session_is_killed_is_cut_and_the_others_finish(
    spark: SparkSession, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(4_000)
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
    assert exit_code(summary) == 4
    assert summary.outcome == "incomplete"
    assert "terminat" in str(summary.reason) or "closed" in str(summary.reason)
    assert 2_000 <= summary.dispatched < 4_000
    assert summary.left == 4_000 - summary.dispatched
    rest = run_sweep(config)
    assert rest.dispatched == summary.left
    tombstones = ledger.rows("tombstones")
    assert len(tombstones) == len({row.message_key for row in tombstones}) == 4_000
    assert len(endpoint.queue_rows("Billing")) == 4_000
