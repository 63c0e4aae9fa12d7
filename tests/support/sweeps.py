"""Whole sweeps, for tests: the only place in which they start one."""

from dataclasses import replace
from typing import Any

from duesweep import wiring
from duesweep.config import Config
from duesweep.stores.journal import SweepReport
from duesweep.stores.values import SweepRun
from duesweep.sweep.engines import Engine, InProcessEngine
from duesweep.sweep.job import DispatchJob, SweepContext
from duesweep.sweep.stop import Stop
from duesweep.sweep.sweep import Reach, Watch, exit_code, sweep
from support.endpoint import Endpoint

__all__ = ["exit_code", "job_of", "run_sweep"]


def run_sweep(
    swept: Endpoint[Any] | Config | SweepContext,
    engine: Engine | None = None,
    *,
    stop: Stop | None = None,
    watch: Watch | None = None,
    reach: Reach | None = None,
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
            context = wiring.sweep_context(swept)
        case _:
            context = swept.context(**settings)
    return sweep(engine or InProcessEngine(), context, watch, reach, stop=stop)


def job_of(context: SweepContext, run: SweepRun, **settings: Any) -> DispatchJob:
    """What a sweep gives its slices; `settings` are the job's own, as in `max_exhausted=1`."""
    job = DispatchJob(
        store=context.store,
        queue=context.queue,
        run=run,
        limits=context.limits,
        retry=context.retry,
        max_exhausted=context.max_exhausted,
        error_queue=context.error_queue,
    )
    return replace(job, **settings)
