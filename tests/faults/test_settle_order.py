"""Batches that commit out of order, and too late."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

from duesweep.core.outcome import Delivered, Outcomes
from duesweep.core.policy import Slicing
from duesweep.ledger.opening import open_ledger
from duesweep.stores.values import SweepRun
from duesweep.sweep.job import SweepContext
from duesweep.sweep.settle import settle_sweep
from duesweep.sweep.slice import ClaimKeys, dispatch_slice
from support.endpoint import Endpoint
from support.faults.dead_sweeps import Dead, assert_settled_once, settle
from support.ledger_reader import LedgerReader
from support.sweeps import job_of
from support.waiting import until

_WAITING = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


def test_batches_that_commit_out_of_the_order_of_their_ids_are_all_settled(
    spark: SparkSession, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    first, second = endpoint.delay_many(2)
    context = endpoint.context()
    with context.store.open_driver() as session:
        run = session.open_sweep(session.horizon())
        session.plan(run, Slicing(2))
        written, go = threading.Event(), threading.Event()
        with ThreadPoolExecutor(2) as pool:

            def hold() -> None:
                written.set()
                assert go.wait(timeout=180)

            slow = pool.submit(deliver_one, context, run, first, hold)
            assert written.wait(timeout=180)  # its journal row has the lower id, uncommitted
            deliver_one(context, run, second)
            closing = pool.submit(session.close_sweep, run.sweep_id, abandoned=False, remaining=0)
            until(lambda: endpoint.fetch(_WAITING))
            go.set()
            slow.result(timeout=180)
            assert closing.result(timeout=180)
        ledger_tables = open_ledger(context.ledger_root, context.ledger_writer, spark)
        session.bind(ledger_tables.create())
        settle_sweep(session, ledger_tables, run.sweep_id)

    assert {row.message_key for row in ledger.rows("tombstones")} == {first, second}


def deliver_one(
    context: SweepContext, run: SweepRun, key: str, before_commit: Callable[[], None] = lambda: None
) -> None:
    """One batch of one message."""
    with (
        context.store.open_task() as store,
        context.queue.open(store) as queue,
        store.transaction(),
    ):
        claim = store.claim(run, [key])
        (message,) = claim.messages
        destination = queue.resolve(message.destination)
        assert queue.deliver(destination, [message]) == {}
        outcomes = Outcomes(delivered=(Delivered(message, str(destination)),))
        store.finish(run, 0, outcomes, claim.server_us)
        before_commit()


def test_late_task_of_a_dead_sweep_is_fenced(
    spark: SparkSession, dead: Dead, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    settle(spark, dead)
    late = endpoint.delay()
    job = job_of(dead.context, dead.run, max_exhausted=1, error_queue=None)

    dispatch_slice(job, 0, ClaimKeys([late], [100], 1))

    assert late in endpoint.waiting()
    assert_settled_once_but(late, dead, endpoint, ledger)


def assert_settled_once_but(key: str, dead: Dead, endpoint: Endpoint, ledger: LedgerReader) -> None:
    endpoint.execute(f"DELETE FROM {endpoint.delayed} WHERE id = $1", key)
    assert_settled_once(dead, endpoint, ledger)
