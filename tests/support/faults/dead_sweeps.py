"""Sweeps whose drivers died."""

from duesweep.core.policy import Slicing
from duesweep.stores.base import DriverSession, SweepRun
from duesweep.sweep.job import SweepContext
from duesweep.sweep.sweep import InProcessEngine
from support.endpoint import Endpoint
from support.sweeps import job_of
from support.waiting import until

_HELD = """
SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
WHERE l.locktype = 'advisory' AND d.datname = current_database()
"""


def dispatch_without_settling(context: SweepContext, session: DriverSession) -> SweepRun:
    """A sweep that was dispatched, and that nobody closes."""
    run = session.open_sweep(session.horizon(), engine="in-process")
    plan = session.plan(run, Slicing(1))
    job = job_of(context, run)
    assert InProcessEngine().dispatch(session, plan, job) is None
    return run


def await_locks(endpoint: Endpoint) -> None:
    """Until the server has ended the sessions of a driver or a command that died: until then their
    locks say that they live.
    """
    until(lambda: not endpoint.fetch(_HELD))
