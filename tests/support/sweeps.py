"""Whole sweeps, for tests: the only place in which they start one."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import Any

from duesweep import wiring
from duesweep.config import Config
from duesweep.core.account import SweepReport
from duesweep.stores.base import SweepRun
from duesweep.sweep.job import Job, Stop, SweepContext
from duesweep.sweep.sweep import Engine, InProcessEngine, Reach, Watch, exit_code, sweep
from support.endpoint import Endpoint

__all__ = ["exit_code", "job_of", "run_sweep", "sweep_at_once"]


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


def sweep_at_once(context: SweepContext, count: int) -> list[SweepReport]:
    """So many sweeps, each in a thread of this process."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run_sweep, [context] * count))


def job_of(context: SweepContext, run: SweepRun, **settings: Any) -> Job:
    """What a sweep gives its slices; `settings` are fields of it or of the context, as in
    `max_exhausted=1`.
    """
    own = {field.name for field in fields(Job)}
    of_job = {name: settings.pop(name) for name in own & settings.keys()}
    return Job(replace(context, **settings), run, **of_job)
