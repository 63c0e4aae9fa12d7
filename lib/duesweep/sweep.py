"""One sweep: plan, dispatch, settle.

First, what dead sweeps left is settled. Then the messages that are due by the horizon are planned
as slices. A sweep that looks ahead has a horizon in the future. One Spark task dispatches each
slice. At the end, what the tasks journalled is settled into the ledger.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import structlog
from pyspark.sql import SparkSession

from duesweep.context import SweepContext
from duesweep.dispatch import DispatchJob, dispatch
from duesweep.errors import ExitCode, SweepClosedError, raise_interruption
from duesweep.ledger.opening import open_ledger
from duesweep.missing_queues import refuse_missing_queues
from duesweep.plan import claim_keys_df, core_count, plan_slices
from duesweep.settle import settle_first, settle_last
from duesweep.spark_errors import SPARK_ERRORS, sentence
from duesweep.stores.base import DriverSession
from duesweep.stores.journal import SweepReport, SweepSummary
from duesweep.stores.values import Horizon, Slices, SweepRun
from duesweep.watchdog import watch_dispatch

_log = structlog.get_logger(__name__)

Watch = Callable[[SweepRun, int], AbstractContextManager[object]]
Reach = Callable[[Horizon], Horizon]


def sweep(
    spark: SparkSession,
    context: SweepContext,
    watch: Watch | None = None,
    reach: Reach | None = None,
) -> SweepReport:
    """Sweep once. Returns the sweep's row of the ledger's `sweeps`, with the error if the ledger
    could not be written.

    `watch` is entered around dispatch with the open sweep and how many messages it found. `reach`
    turns the server's time into the sweep's horizon, by default `context.reach`. Raises the
    `DuesweepError`s of its parts; in every case the journal has what was done.
    """
    ledger = open_ledger(context.ledger_root, context.ledger_writer, spark)
    with context.store.open_driver() as session:
        session.check()
        ledger_error = settle_first(session, ledger)
        horizon = (reach or context.reach)(session.horizon())
        refuse_missing_queues(context, session, horizon)
        if ledger_error is not None and not session.count_pending(horizon):
            # Otherwise each run would add an empty sweep to what has to be settled.
            raise ledger_error
        run = session.open_sweep(horizon)
        plan = plan_slices(session, run, context.slices or core_count(spark), context.limits)
        cut_short: str | None = None
        if plan.found:
            with watch(run, plan.found) if watch else nullcontext():
                cut_short = _dispatch(spark, session, run, plan, context)
        _close(session, run, cut_short)
        return settle_last(session, ledger, run.sweep_id, ledger_error)


def exit_code(summary: SweepSummary) -> ExitCode:
    """The process's exit code for a sweep that has ended."""
    if isinstance(summary, SweepReport) and summary.ledger_error:
        return ExitCode.WORK_LEFT
    if summary.outcome in {"incomplete", "abandoned"}:
        return ExitCode.WORK_LEFT
    return ExitCode.MESSAGES_FAILED if summary.outcome == "failures" else ExitCode.DONE


def _dispatch(
    spark: SparkSession, session: DriverSession, run: SweepRun, plan: Slices, context: SweepContext
) -> str | None:
    """Dispatch all slices. Returns why Spark ended before all were done; None where all were."""
    job = DispatchJob(
        store=context.store,
        queue=context.queue,
        run=run,
        limits=context.limits,
        retry=context.retry,
        max_exhausted=context.max_exhausted,
        error_queue=context.error_queue,
    )
    watchdog = watch_dispatch(spark, context.store, run, context.timeouts.plan_seconds(plan.found))
    with watchdog as watching:
        try:
            dispatch(claim_keys_df(spark, session.jdbc(), plan), job)
        except SPARK_ERRORS as error:
            raise_interruption(error)
            # The journal has what was done; slices without an end count as cut.
            reason = watching.reason or f"Spark ended the job: {sentence(error)}"
            _log.error("dispatch_cut_short", sweep_id=str(run.sweep_id), error=reason)
            return reason
    return None


def _close(session: DriverSession, run: SweepRun, cut_short: str | None) -> None:
    if not session.close_sweep(
        run.sweep_id,
        abandoned=False,
        remaining=lambda: session.count_pending(run.horizon),
        reason=cut_short,
    ):
        raise SweepClosedError(
            f"Another process closed sweep {run.sweep_id} of {session.source}: somebody aborted "
            "it, or it was taken for dead; messages that it dispatched stay dispatched, and the "
            "sweep counts as abandoned"
        )
