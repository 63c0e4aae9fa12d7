"""Sweeps whose drivers died, and what settling them has to come to."""

from dataclasses import dataclass

from pyspark.sql import SparkSession

from duesweep.core.patience import Patience
from duesweep.core.policy import Slicing
from duesweep.ledger import opening
from duesweep.stores.base import DriverSession
from duesweep.stores.values import SweepRun
from duesweep.sweep.engines import InProcessEngine
from duesweep.sweep.job import SweepContext
from duesweep.sweep.settle import settle_leftovers
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader, retry_rows
from support.sweeps import job_of
from support.waiting import until

_HELD = b"""
SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
WHERE l.locktype = 'advisory' AND d.datname = current_database()
"""


@dataclass
class Dead:
    """A sweep that was dispatched, and whose driver died before it closed it."""

    context: SweepContext
    run: SweepRun


def dispatch_without_settling(context: SweepContext, session: DriverSession) -> SweepRun:
    run = session.open_sweep(session.horizon(), engine="in-process")
    plan = session.plan(run, Slicing(1))
    job = job_of(context, run)
    assert InProcessEngine().dispatch(session, plan, job) is None
    return run


def await_end(dead: Dead) -> None:
    """Until the server has ended the sessions of the driver or settler that died. Until then their
    locks say that they live.
    """
    await_end_of(dead.context)


def await_end_of(context: SweepContext) -> None:
    """The same, of the sessions of a command."""
    with context.store.open_driver() as session:
        until(lambda: not session._session._raw.execute(_HELD).fetchall())  # noqa: SLF001 - any session would do


def settle(spark: SparkSession, dead: Dead) -> None:
    with dead.context.store.open_driver() as session:
        settle_leftovers(
            session,
            opening.open_ledger(dead.context.ledger_root, dead.context.ledger_writer, spark),
            Patience(60),
        )


def assert_settled_once(dead: Dead, endpoint: Endpoint, ledger: LedgerReader) -> None:
    tombstones = ledger.rows("tombstones")
    assert len(tombstones) == len({row.message_key for row in tombstones}) == 8
    assert {row.sweep_id for row in tombstones} == {str(dead.run.sweep_id)}
    assert sum(row.outcome == "exhausted" for row in tombstones) == 1
    assert len(ledger.rows("errors")) == 1
    counters = endpoint.attempts()
    assert counters.keys() == set(endpoint.waiting())
    ledger.assert_holds("retries", retry_rows(counters, dead.context.store.source))
    (row,) = ledger.rows("sweeps")
    assert row.sweep_id == str(dead.run.sweep_id)
    assert (row.outcome, row.found, row.claimed) == ("abandoned", 10, 10)
    assert (row.dispatched, row.failed, row.exhausted, row.skipped, row.left) == (7, 2, 1, 0, 0)
    for table in ("duesweep_journal", "duesweep_sweeps"):
        assert endpoint.fetch(f"SELECT FROM {table}") == []
