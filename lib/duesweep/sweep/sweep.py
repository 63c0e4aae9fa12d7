"""One sweep: plan, dispatch, settle.

First, what dead sweeps left is settled. Then the messages that are due by the horizon are planned
as slices, unless the look before the sweep has planned already. A sweep that looks ahead has a
horizon in the future. The engine dispatches the slices: Spark (spark.py), or this process
(in_process.py). At the end, their journal is settled into the ledger.

    sweep                one call: its report is the sum of
      _sweep_all         the parts of a large plan, and rounds for messages that an outage left
        _sweep           each of them, which is a sweep in the ledger
          _settle_before
          OpenSweep      open_sweep.py: plan and dispatch, in a watcher again and again
          _settle_after

A large backlog is planned once and current in parts (backlog.py). Messages that an outage keeps in
the store are planned again in another round (rounds.py). Each part and each round is settled before
the next one begins, so the journal is bounded. A watcher's sweep stays open for messages as they
come due, and is settled while the next one delivers (settler.py).
"""

from dataclasses import replace
from datetime import datetime
from math import inf
from uuid import UUID

from duesweep.core import logs
from duesweep.core.account import (
    SweepReport,
    add_reports,
    add_rest,
    add_round,
    give_up,
)
from duesweep.core.errors import (
    DuesweepError,
    ExitCode,
    LedgerError,
    NothingDueError,
    StoreError,
    SweepClosedError,
    may_pass,
)
from duesweep.core.result import exit_code_of
from duesweep.core.world import LEDGER, STORAGE, Patience
from duesweep.ledger.ledger import Ledger
from duesweep.stores.base import DriverSession, operators_of
from duesweep.sweep.job import CutShort, Engine, Planned, SweepContext, attributes_of
from duesweep.sweep.open_sweep import OpenSweep, Shown, Sweeping
from duesweep.sweep.queues_check import refuse_missing_queues
from duesweep.sweep.rounds import Rounds
from duesweep.sweep.settle import (
    BRIEFLY_SECONDS,
    count_sweep,
    drop_empty,
    late_report,
    living_session,
    settle_first,
    settle_last,
    with_unreported,
)
from duesweep.sweep.settler import UNANSWERED, Settler
from duesweep.sweep.stop import Stop

# How long a sweep that runs once waits for other settlers, before and after dispatch.
_BEFORE_SECONDS, _AFTER_SECONDS = 1.0, 5.0


def sweep(
    engine: Engine,
    context: SweepContext,
    shown: Shown | None = None,
    *,
    stop: Stop | None = None,
    planned: Planned | None = None,
    since: datetime | None = None,
    rounds: Rounds | None = None,
    settler: Settler | None = None,
) -> SweepReport:
    """Sweep once. Returns the sweep's row of the ledger's `sweeps`, with the error if the ledger
    could not be written. More than `MOST_IN_A_SWEEP` messages take several sweeps, each with a row
    of its own. Then the report has their sums, and the limits count for all of them together.

    `shown` is entered around dispatch with the open sweep and how many messages it found. `planned`
    is a plan that was made just before; without one, the first plan is `since` a Due: a look has
    found that earlier messages are held back. `rounds` are a watcher's, of which this is one; its
    `settler` writes the ledger, and the report says why earlier sweeps are not in it. `stop` ends
    it early: before the plan, else after the current batches. Raises the `DuesweepError`s of its
    parts; in every case the journal has all batches.
    """
    attributes = {"duesweep.source": context.store.source, "duesweep.engine": engine.name}
    with context.tracing.recording("sweep", attributes):
        rounds = rounds or Rounds(context.breaker, context.world.clock, context.batch_size.rows)
        stop = stop or Stop()
        sweeping = Sweeping(engine, context, stop, shown, rounds, settler, planned, since)
        if planned is not None:
            sweeping.take(planned.horizon, planned.slices)
        report = _sweep_all(sweeping)
        report = add_rest(report, sweeping.backlog.left, is_stopped=sweeping.stop.is_wanted)
        context.tracing.note(attributes_of(report))
        if exit_code_of(report) is not ExitCode.DONE:
            reasons = (report.ledger_error, report.reason, *(one.reason for one in report.failures))
            context.tracing.fail(report.outcome, next(filter(None, reasons), report.outcome))
        return report


def _sweep_all(sweeping: Sweeping) -> SweepReport:
    """Sweep all parts of the plan, and then in rounds the messages that an outage left."""
    context, rounds = sweeping.context, sweeping.rounds
    report = _sweep(sweeping)
    assert report is not None  # of the first round
    while (seconds := sweeping.seconds_to_next) is not None:
        sweeping.stop.wait(seconds)
        if sweeping.stop.is_wanted:
            break
        more = max(0, context.retry.max_exhausted_per_sweep - report.exhausted)
        sweeping.context = replace(
            context, retry=replace(context.retry, max_exhausted_per_sweep=more)
        )
        is_again = sweeping.backlog.is_again
        try:
            found = _sweep(sweeping)
            last = sweeping.last
            if is_again and last is not None and not last.is_planned:
                # A stop came first: it has found nothing out.
                break
        except LedgerError as error:
            # Nothing of this part is dispatched: the journal holds as much as it may.
            report = replace(report, ledger_error=str(error))
            break
        except DuesweepError as error:
            # A sweep that was opened has waited for its store.
            if sweeping.last is None and isinstance(error, StoreError) and may_pass(error):
                rounds.fail(error)
                if sweeping.seconds_to_next is not None:
                    continue
            done = {"dispatched": report.dispatched, "sweep_ids": report.sweep_ids}
            logs.error("backlog_ends_early", **done, left=sweeping.backlog.left)
            raise
        report = (
            add_round(report, found, are_held=sweeping.are_held)
            if is_again or not found
            else add_reports(report, found)
        )
        if found is None:
            break
    report = rounds.with_services(report)
    return report if context.repeats or sweeping.stop.is_wanted else give_up(report)


def _sweep(sweeping: Sweeping) -> SweepReport | None:
    """Sweep the due messages, or the next part of the plan, or the messages that the round before
    left. None: none of them is due.
    """
    context, stop, backlog = sweeping.context, sweeping.stop, sweeping.backlog
    ledger = context.open_ledger(sweeping.engine.spark)
    with sweeping.begun() as session:
        if context.rate_limits.limits:
            # The store has to count reservations.
            operators_of(context.store, "[[limit]]")
        ledger_error = _settle_before(sweeping, session, ledger)
        horizon = backlog.horizon
        if horizon is None:
            horizon = context.reach(session.due.horizon())
            if sweeping.since is not None:
                horizon = replace(horizon, since=sweeping.since)
            refuse_missing_queues(context, session.due, horizon)
            if ledger_error is not None and not session.due.count_pending(horizon, most=1):
                # Otherwise each run would add an empty sweep that has to be settled.
                raise NothingDueError.of(ledger_error.problem, transient=ledger_error.transient)
        elif backlog.is_again:
            sweeping.are_held = bool(session.due.pauses())
            if not session.due.count_pending(horizon, most=1):
                return None
        current = OpenSweep(sweeping, session, horizon)
        sweep_id = current.run.sweep_id
        stop.unreported.add((session.source, sweep_id))
        current.dispatch()
        cut_short = current.cut_short
        with living_session(context, session, current.run, stop=stop) as living:
            try:
                current.close(living)
                with context.tracing.span("settle"):
                    report = _settle_after(
                        sweeping, living, ledger, sweep_id, ledger_error=ledger_error
                    )
            except SweepClosedError as error:
                found = late_report(living.journal, ledger, sweep_id, context.new_tally())
                if found is None:
                    raise
                report = replace(found, reason=found.reason or str(error))
                # An operator, or another sweep, has ended it.
                current.cut_short = cut_short or CutShort(str(error))
            stop.unreported.discard((session.source, sweep_id))
            sweeping.note(report)
            report = replace(report, is_lasting=bool(cut_short and cut_short.is_lasting))
            if sweeping.settler is not None and living is session:
                # The watcher's session stays open.
                living.sweeps.release(sweep_id)
            return with_unreported(report, living, ledger, context=context, stop=stop)


def _settle_before(
    sweeping: Sweeping, session: DriverSession, ledger: Ledger
) -> LedgerError | None:
    """Settle what dead sweeps left. Returns why that cannot be written; raises if nothing may be
    dispatched.
    """
    context, stop = sweeping.context, sweeping.stop
    if sweeping.settler is not None:
        return sweeping.settler.before(session, ledger)
    with stop.waits.waiting(STORAGE, UNANSWERED):
        error = settle_first(session, ledger, _patience(context, stop, _BEFORE_SECONDS))
    _note(stop, error)
    return error


def _settle_after(
    sweeping: Sweeping,
    session: DriverSession,
    ledger: Ledger,
    sweep_id: UUID,
    *,
    ledger_error: LedgerError | None,
) -> SweepReport:
    """Settle the closed sweep, unless it moved nothing, or that is the settler's. Its report."""
    context, stop, journal = sweeping.context, sweeping.stop, session.journal
    if sweeping.backlog.is_again or sweeping.rounds.is_in_vain:
        report = drop_empty(journal, sweep_id, ledger_error)
        if report is not None:
            return report
    if sweeping.settler is not None:
        report = count_sweep(journal, sweep_id, context.new_tally())
        return replace(report, ledger_error=None if ledger_error is None else str(ledger_error))
    with stop.waits.waiting(STORAGE, UNANSWERED):
        patience = _patience(context, stop, _AFTER_SECONDS)
        seconds = BRIEFLY_SECONDS if context.repeats else inf
        report = settle_last(
            session, ledger, sweep_id, patience, tally=context.new_tally(), seconds=seconds
        )
    _note(stop, report.ledger_error)
    return report


def _note(stop: Stop, ledger_error: object | None) -> None:
    """Tell a watcher since when rows have been waiting for the ledger."""
    if ledger_error is None:
        stop.waits.end(LEDGER)
    else:
        stop.waits.begin(LEDGER, str(ledger_error))


def _patience(context: SweepContext, stop: Stop, seconds: float) -> Patience:
    return Patience(0 if context.repeats else seconds, lambda: stop.is_wanted, context.world.clock)
