"""Whole sweeps, for tests: the only place in which they start one."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import Any

from duesweep.config import Config
from duesweep.config.adapters.context import sweep_context
from duesweep.core.account import SweepReport
from duesweep.core.policy import Slicing
from duesweep.stores.base import DriverSession
from duesweep.stores.sweeps import SweepRun
from duesweep.sweep.in_process import InProcessEngine
from duesweep.sweep.job import Engine, Job, SweepContext
from duesweep.sweep.open_sweep import Shown
from duesweep.sweep.stop import Stop
from duesweep.sweep.sweep import sweep
from support.endpoint import Endpoint


def run_sweep(
    swept: Endpoint[Any] | Config | SweepContext,
    engine: Engine | None = None,
    *,
    stop: Stop | None = None,
    shown: Shown | None = None,
    **settings: object,
) -> SweepReport:
    """Sweep once, in this process unless an engine is given. Returns the sweep's row of the ledger.

    `settings` change an endpoint's configuration, as in `retry__max_attempts=2`. A configuration
    or a context is for tests that load or arm their own.
    """
    match swept:
        case SweepContext():
            context = swept
        case Config():
            context = sweep_context(swept)
        case _:
            context = swept.context(**settings)
    return sweep(engine or InProcessEngine(), context, shown, stop=stop)


def sweep_at_once(context: SweepContext, count: int) -> list[SweepReport]:
    """`count` sweeps, each in a thread of this process."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run_sweep, [context] * count))


def job_of(context: SweepContext, run: SweepRun, **settings: Any) -> Job:
    """The job that a sweep gives its slices; `settings` are fields of it or of the context, as in
    `slices=1`.
    """
    own = {field.name for field in fields(Job)}
    of_job = {name: settings.pop(name) for name in own & settings.keys()}
    return Job(replace(context, **settings), run, **of_job)


def dispatch_without_settling(context: SweepContext, session: DriverSession) -> SweepRun:
    """A sweep that was dispatched, and stays open."""
    run = session.sweeps.open(session.due.horizon(), engine="in-process")
    plan = session.due.plan(run.horizon, Slicing(1))
    job = job_of(context, run, first_slice=session.sweeps.note_slices(run, plan))
    engine = InProcessEngine()
    try:
        assert engine.dispatch(session.due, plan, job).cut_short is None
    finally:
        engine.close()
    return run


def end_leases(endpoint: Endpoint) -> None:
    """As if the processes that have them had been frozen for longer than a lease lasts."""
    endpoint.execute(f"DELETE FROM {endpoint.own_table('leases')}")
