"""One sweep: plan, dispatch, settle.

What is due by the horizon (or will be before the next sweep, where this one looks ahead) is planned
as slices, each slice is dispatched by one Spark task, and what they journalled is settled into the
ledger. Before all that, what a dead sweep left is settled.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import structlog
from pyspark.sql import SparkSession

from duesweep.dispatch import DispatchJob, dispatch
from duesweep.errors import ExitCode, SweepClosedError
from duesweep.ledger.tables import Ledger
from duesweep.parts import SweepParts
from duesweep.plan import core_count, plan_slices, tickets_df
from duesweep.settle import settle_leftovers, settle_sweep
from duesweep.spark_errors import SPARK_ERRORS, sentence
from duesweep.stores.base import DriverSession
from duesweep.stores.values import Horizon, Slices, SweepRun, SweepSummary
from duesweep.watchdog import watched

_log = structlog.get_logger(__name__)

Watch = Callable[[SweepRun, int], AbstractContextManager[object]]
Reach = Callable[[Horizon], Horizon]


def sweep(
    spark: SparkSession,
    parts: SweepParts,
    watch: Watch | None = None,
    reach: Reach | None = None,
) -> SweepSummary:
    """Sweep once; what the ledger's `sweeps` says of it.

    `watch` is entered around dispatch with the open sweep and how many messages it found; `reach`
    says how far the sweep looks from what is due now, by default what `parts` say.
    Raises the `DuesweepError`s of its parts; whatever happens, the journal says what was done.
    """
    ledger = Ledger(spark, parts.ledger_root)
    with parts.store.open_driver() as session:
        session.check()
        settle_leftovers(spark, session, ledger)
        run = session.open_sweep((reach or parts.reach)(session.horizon()))
        plan = plan_slices(session, run, parts.slices or core_count(spark), parts.limits)
        if plan.found:
            with watch(run, plan.found) if watch else nullcontext():
                _dispatch(spark, session, run, plan, parts)
        _close(session, run)
        return settle_sweep(spark, session, ledger, run.sweep_id)


def exit_code(summary: SweepSummary) -> ExitCode:
    """What a settled sweep tells the shell."""
    if summary.outcome in {"incomplete", "abandoned"}:
        return ExitCode.WORK_LEFT
    return ExitCode.MESSAGES_FAILED if summary.outcome == "failures" else ExitCode.DONE


def _dispatch(
    spark: SparkSession, session: DriverSession, run: SweepRun, plan: Slices, parts: SweepParts
) -> None:
    job = DispatchJob(
        store=parts.store,
        queue=parts.queue,
        run=run,
        limits=parts.limits,
        retry=parts.retry,
        max_exhausted=parts.max_exhausted,
        error_queue=parts.error_queue,
    )
    watchdog = watched(spark, parts.store, run, parts.timeouts.plan_seconds(plan.found))
    with watchdog as watching:
        try:
            dispatch(tickets_df(spark, session.jdbc(), plan), job)
        except SPARK_ERRORS as error:
            # The journal knows what was done; slices without an end count as cut.
            reason = watching.reason or sentence(error)
            _log.error("dispatch_cut_short", sweep_id=str(run.sweep_id), error=reason)


def _close(session: DriverSession, run: SweepRun) -> None:
    remaining = session.count_pending(run.horizon)
    if not session.close_sweep(run.sweep_id, abandoned=False, remaining=remaining):
        raise SweepClosedError(
            f"Sweep {run.sweep_id} of {session.source} was closed by another process: somebody "
            "aborted it, or it was taken for dead; what it did stays done, and counts as abandoned"
        )
