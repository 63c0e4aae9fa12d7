"""One sweep: plan, dispatch, settle.

First, what dead sweeps left is settled. Then the messages that are due by the horizon are planned
as slices, unless the look before the sweep has planned already. A sweep that looks ahead has a
horizon in the future. The engine dispatches the slices: Spark (spark.py), or this process
(in_process.py). At the end, their journal is settled into the ledger.

    sweep                one call: its report is the sum of
      _sweep_all         the parts of a large plan, and rounds for messages that an outage left
        _sweep           each of them, which is a sweep in the ledger
          _settle_before
          _dispatch      by the engine
            _go_on       in a watcher, messages as they come due
          _settle_after

A large backlog is planned once and swept in parts (backlog.py). Messages that an outage keeps in
the store are planned again in another round (rounds.py). Each part and each round is settled before
the next one begins, so the journal is bounded. A watcher's sweep stays open for messages as they
come due, and is settled while the next one delivers (settler.py).
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from math import inf

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
from duesweep.core.world import LEDGER, STORAGE, STORE, Clock, Patience
from duesweep.ledger.ledger import Ledger
from duesweep.stores.base import DriverSession, operators_of
from duesweep.stores.due import Horizon, Slices
from duesweep.stores.sweeps import SweepRun
from duesweep.sweep.backlog import Backlog, Part
from duesweep.sweep.job import (
    CutShort,
    Engine,
    Job,
    Planned,
    SweepContext,
    Tracing,
    attributes_of,
)
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
from duesweep.sweep.stop import STORE_IS_SILENT, Stop

# How long a sweep that runs once waits for other settlers, before and after dispatch.
_BEFORE_SECONDS, _AFTER_SECONDS = 1.0, 5.0
# For how long a watcher keeps a sweep open, at most and while nothing comes due. Messages that are
# in no ledger yet count as suspected after a disaster, and each sweep is two commits.
OPEN_SECONDS, _IDLE_SECONDS = 10.0, 1.0
# Each sweep differs in that, so that sweeps of a fleet do not end at the same time.
_LEAST_OPEN, _MOST_OPEN = 0.5, 1.5
# It rests after each round, and looks again in this time if nothing is due sooner.
_REST_SECONDS, _LOOK_SECONDS = 0.02, 0.1


Watch = Callable[[SweepRun, int], AbstractContextManager[object]]
Reach = Callable[[Horizon], Horizon]


def sweep(
    engine: Engine,
    context: SweepContext,
    watch: Watch | None = None,
    reach: Reach | None = None,
    *,
    stop: Stop | None = None,
    planned: Planned | None = None,
    rounds: Rounds | None = None,
    settler: Settler | None = None,
) -> SweepReport:
    """Sweep once. Returns the sweep's row of the ledger's `sweeps`, with the error if the ledger
    could not be written. More than `MOST_IN_A_SWEEP` messages take several sweeps, each with a row
    of its own. Then the report has their sums, and the limits count for all of them together.

    `watch` is entered around dispatch with the open sweep and how many messages it found. `reach`
    turns the server's time into the sweep's horizon, by default `context.reach`. `planned`: a plan
    that was made just before, in the same way. `rounds` are a watcher's, of which this is one; its
    `settler` writes the ledger, and the report says why earlier sweeps are not in it. `stop` ends
    it early: before the plan, else after the current batches. Raises the `DuesweepError`s of its
    parts; in every case the journal has all batches.
    """
    attributes = {"duesweep.source": context.store.source, "duesweep.engine": engine.name}
    with context.tracing.recording("sweep", attributes):
        rounds = rounds or Rounds(context.breaker, context.world.clock, context.batch_size.rows)
        dispatching = _Dispatching(engine, context, stop or Stop(), watch, rounds, settler)
        if planned is not None:
            dispatching.planned = planned
            dispatching.take(planned.horizon, planned.slices)
        report = _sweep_all(dispatching, reach or context.reach)
        report = add_rest(report, dispatching.backlog.left, is_stopped=dispatching.stop.is_wanted)
        context.tracing.note(attributes_of(report))
        if exit_code_of(report) is not ExitCode.DONE:
            reasons = (report.ledger_error, report.reason, *(one.reason for one in report.failures))
            context.tracing.fail(report.outcome, next(filter(None, reasons), report.outcome))
        return report


def _sweep_all(dispatching: "_Dispatching", reach: Reach) -> SweepReport:
    """Sweep all parts of the plan, and then in rounds the messages that an outage left."""
    context, rounds = dispatching.context, dispatching.rounds
    report = _sweep(dispatching, reach)
    assert report is not None  # of the first round
    while (seconds := dispatching.seconds_to_next) is not None:
        dispatching.stop.wait(seconds)
        if dispatching.stop.is_wanted:
            break
        more = max(0, context.retry.max_exhausted_per_sweep - report.exhausted)
        dispatching.context = replace(
            context, retry=replace(context.retry, max_exhausted_per_sweep=more)
        )
        is_again = dispatching.backlog.is_again
        try:
            found = _sweep(dispatching, reach)
            if found is not None and is_again and not dispatching.is_planned:
                # A stop came first: it has found nothing out.
                break
        except LedgerError as error:
            # Nothing of this part is dispatched: the journal holds as much as it may.
            report = replace(report, ledger_error=str(error))
            break
        except DuesweepError as error:
            # A sweep that was opened has waited for its store.
            if not dispatching.is_open and isinstance(error, StoreError) and may_pass(error):
                rounds.fail(error)
                if dispatching.seconds_to_next is not None:
                    continue
            done = {"dispatched": report.dispatched, "sweep_ids": report.sweep_ids}
            logs.error("backlog_ends_early", **done, left=dispatching.backlog.left)
            raise
        report = (
            add_round(report, found, are_held=dispatching.are_held)
            if is_again or not found
            else add_reports(report, found)
        )
        if found is None:
            break
    report = rounds.with_services(report)
    return report if context.repeats or dispatching.stop.is_wanted else give_up(report)


def _sweep(dispatching: "_Dispatching", reach: Reach) -> SweepReport | None:
    """Sweep the due messages, or the next part of the plan, or the messages that the round before
    left. None: none of them is due.
    """
    engine, context, stop = dispatching.engine, dispatching.context, dispatching.stop
    dispatching.begin()
    ledger = context.open_ledger(engine.spark)
    with dispatching.opened() as session:
        if context.rate_limits.limits:
            # The store has to count reservations.
            operators_of(context.store, "[[limit]]")
        ledger_error = _settle_before(dispatching, session, ledger)
        horizon = dispatching.backlog.horizon
        if horizon is None:
            horizon = reach(session.due.horizon())
            refuse_missing_queues(context, session.due, horizon)
            if ledger_error is not None and not session.due.count_pending(horizon, most=1):
                # Otherwise each run would add an empty sweep that has to be settled.
                raise NothingDueError.of(ledger_error.problem, transient=ledger_error.transient)
        elif dispatching.backlog.is_again:
            dispatching.are_held = bool(session.due.pauses())
            if not session.due.count_pending(horizon, most=1):
                return None
        run = session.sweeps.open(horizon, engine=engine.name)
        dispatching.is_open = True
        stop.unreported.add((session.source, run.sweep_id))
        run = _dispatch(dispatching, session, run, reach)
        cut_short = dispatching.cut_short
        with living_session(context, session, run, stop=stop) as living:
            try:
                _close(living, run, cut_short, is_planned=dispatching.is_planned)
                with context.tracing.span("settle"):
                    report = _settle_after(
                        dispatching, living, ledger, run, ledger_error=ledger_error
                    )
            except SweepClosedError as error:
                tally = context.new_tally()
                found = late_report(living.journal, ledger, run.sweep_id, tally)
                if found is None:
                    raise
                report = replace(found, reason=found.reason or str(error))
                # An operator, or another sweep, has ended it.
                dispatching.cut_short = cut_short or CutShort(str(error))
            stop.unreported.discard((session.source, run.sweep_id))
            dispatching.note(report)
            report = replace(report, is_lasting=bool(cut_short and cut_short.is_lasting))
            if dispatching.settler is not None and living is session:
                # The watcher's session stays open.
                living.sweeps.release(run.sweep_id)
            return with_unreported(report, living, ledger, context=context, stop=stop)


def _settle_before(
    dispatching: "_Dispatching", session: DriverSession, ledger: Ledger
) -> LedgerError | None:
    """Settle what dead sweeps left. Returns why that cannot be written; raises if nothing may be
    dispatched.
    """
    context, stop = dispatching.context, dispatching.stop
    if dispatching.settler is not None:
        return dispatching.settler.before(session, ledger)
    with stop.waits.waiting(STORAGE, UNANSWERED):
        error = settle_first(session, ledger, _patience(context, stop, _BEFORE_SECONDS))
    _note(stop, error)
    return error


def _settle_after(
    dispatching: "_Dispatching",
    session: DriverSession,
    ledger: Ledger,
    run: SweepRun,
    *,
    ledger_error: LedgerError | None,
) -> SweepReport:
    """Settle the closed sweep, unless it moved nothing, or that is the settler's. Its report."""
    context, stop, journal = dispatching.context, dispatching.stop, session.journal
    if dispatching.backlog.is_again or dispatching.rounds.is_in_vain:
        report = drop_empty(journal, run.sweep_id, ledger_error)
        if report is not None:
            return report
    if dispatching.settler is not None:
        report = count_sweep(journal, run.sweep_id, context.new_tally())
        return replace(report, ledger_error=None if ledger_error is None else str(ledger_error))
    with stop.waits.waiting(STORAGE, UNANSWERED):
        patience = _patience(context, stop, _AFTER_SECONDS)
        seconds = BRIEFLY_SECONDS if context.repeats else inf
        report = settle_last(
            session, ledger, run.sweep_id, patience, tally=context.new_tally(), seconds=seconds
        )
    _note(stop, report.ledger_error)
    return report


def _dispatch(
    dispatching: "_Dispatching", session: DriverSession, run: SweepRun, reach: Reach
) -> SweepRun:
    """Dispatch the next part of the plan, which is made if it is missing. A sweep that repeats
    then takes messages as they come due. Returns the run with its last horizon.
    """
    context, stop, engine = dispatching.context, dispatching.stop, dispatching.engine
    dispatching.is_planned = not stop.is_wanted
    limited = dispatching.rounds.limited
    with stop.passed_on(context.store, session.sweeps, run), closing(engine), closing(limited):
        if not dispatching.is_planned:
            return run
        if not dispatching.backlog.parts:
            dispatching.plan(session, run.horizon)
        dispatching.run(session, run)
        run = _go_on(dispatching, session, run, reach)
        dispatching.finish(session, run)
        return run


@dataclass(slots=True)
class _Dispatching:
    """Plans, and dispatches in open sweeps. `planned` before the sweep, and not used yet. Of the
    last sweep: `is_open`: it was opened; `is_planned`: it has a plan; `cut_short`: why it ended
    before all slices were done; `goes_on`: it may have another round. Of all of them: `are_held`:
    there are pauses; `has_left`: some messages were left, and are to be planned again soon; before
    `failed_at` no message failed.
    """

    engine: Engine
    context: SweepContext
    stop: Stop
    watch: Watch | None
    rounds: Rounds
    settler: Settler | None = None
    planned: Planned | None = None
    backlog: Backlog = field(default_factory=Backlog)
    is_open: bool = False
    is_planned: bool = False
    cut_short: CutShort | None = None
    goes_on: bool = False
    are_held: bool = False
    has_left: bool = False
    failed_at: float | None = None

    @property
    def seconds_to_next(self) -> float | None:
        """After how many seconds to sweep again; None: that is of no use, or not wanted."""
        if self.cut_short or self.stop.is_wanted or not (self.backlog.parts or self.stop.may_claim):
            return None
        if self.backlog.parts and not self.rounds.are_services_out:
            return 0.0
        # A watcher rests by itself.
        is_over = self.context.repeats and not self.backlog.parts
        seconds = None if is_over else self.rounds.seconds_to_next
        if seconds is None or self.failed_at is None:
            return seconds
        # A run costs a message one attempt.
        back_off = self.context.retry.shortest_seconds
        is_in_time = self._clock.seconds() + seconds < self.failed_at + back_off
        return seconds if is_in_time else None

    @property
    def _clock(self) -> Clock:
        return self.context.world.clock

    @contextmanager
    def opened(self) -> Iterator[DriverSession]:
        """A session whose tables are checked: the planner's for the first sweep, else a new one."""
        planned, self.planned = self.planned, None
        if planned is not None:
            with planned.opened:
                yield planned.session
            return
        with self.context.store.open_driver() as session:
            session.check()
            yield session

    def begin(self) -> None:
        """Begin a sweep."""
        self.is_open = self.goes_on = False
        self.cut_short = None
        self.rounds.begin()

    def note(self, report: SweepReport) -> None:
        """Note the end of a sweep."""
        self.rounds.note(report, is_part=self.backlog.is_later_part)
        self.has_left |= bool(report.left or report.skipped)
        if report.failed and self.failed_at is None:
            self.failed_at = self.rounds.began
        self.stop = self.stop.after(report.claimed)
        self.backlog.end_sweep()

    def take(self, horizon: Horizon, plan: Slices) -> None:
        """Sweep this plan, in parts."""
        self.backlog.take(horizon, plan, self.stop.shares(plan.planned))

    def plan(self, session: DriverSession, horizon: Horizon) -> None:
        """Plan the messages that are due by the horizon."""
        with self.context.tracing.span("plan"):
            self.take(horizon, self.engine.plan(session.due, horizon, self.context))

    def run(self, session: DriverSession, run: SweepRun) -> None:
        """Dispatch the first part of the plan, if there is any."""
        self.goes_on = False
        if not self.backlog.parts:
            return
        if (seconds := self.stop.begin()) is not None:
            session.sweeps.stop(run.sweep_id, seconds)
        part, limited = self.backlog.next(), self.rounds.limited
        job = self._job(run, part, first_slice=session.sweeps.note_slices(run, part.plan))
        watched = self.watch(run, part.plan.found) if self.watch else nullcontext()
        with self.context.tracing.span("dispatch"), watched:
            done = self.engine.dispatch(session.due, part.plan, job)
            self.cut_short = done.cut_short
            if not self.context.repeats:
                self.cut_short = limited.finish(leaves=False) or self.cut_short
        if job.shares is not None:
            # It claims no more, and the rest counts as left by a stop.
            session.sweeps.stop(run.sweep_id, 0)
        elif self.may_go_on and done.end is not None and done.cut_short is None:
            self.goes_on = self.rounds.go_on(run.horizon, done.end, waits=limited.is_waiting)

    def finish(self, session: DriverSession, run: SweepRun) -> None:
        """Leave the messages that wait for their limit."""
        limited = self.rounds.limited
        if limited.is_waiting:
            with suppress(StoreError):
                # They count as left by a stop.
                session.sweeps.stop(run.sweep_id, 0)
        self.cut_short = limited.finish(leaves=True) or self.cut_short

    @property
    def may_go_on(self) -> bool:
        """Whether the sweep may have another round."""
        return self.context.repeats and not (self.backlog.parts or self.has_left)

    def _job(self, run: SweepRun, part: Part, first_slice: int) -> Job:
        return Job(
            # Its class and its secrets are not for executors.
            replace(self.context, tracing=Tracing()),
            run,
            shares=part.shares,
            first_slice=first_slice,
            outages=self.rounds.outages,
            tries_in=self.rounds.low_water.seconds_to_try,
            limited=self.rounds.limited,
            stop=self.stop,
        )


def _go_on(
    dispatching: _Dispatching, session: DriverSession, run: SweepRun, reach: Reach
) -> SweepRun:
    """Dispatch messages as they come due, in the same sweep: with a sweep for each round, they
    would wait for the ledger, which would get 100,000 commits a day. It ends after some seconds,
    even if messages wait for their limit; when messages that an outage left are to be tried, as it
    has counted them; and at once if a round leaves others.

    Returns the run with its last horizon.
    """
    stop, clock = dispatching.stop, dispatching.context.world.clock
    low_water, limited = dispatching.rounds.low_water, dispatching.rounds.limited
    began = moved_at = clock.seconds()
    most = OPEN_SECONDS * dispatching.context.world.chance().uniform(_LEAST_OPEN, _MOST_OPEN)
    seconds = _REST_SECONDS
    try:
        while dispatching.goes_on:
            stop.wait(seconds)
            now = clock.seconds()
            ends_at = began + most
            if not limited.is_waiting:
                if limited.has_left:
                    break
                low_water.release()
                ends_at = min(ends_at, moved_at + _IDLE_SECONDS)
            if stop.is_wanted or now >= (low_water.tries_at or ends_at):
                break
            with stop.waits.waiting(STORE, STORE_IS_SILENT):
                horizon = reach(session.due.horizon())
                # A plan takes several times as long as this look.
                work = low_water.find_work(session.due, horizon)
                if work is not None and not work.only_settles:
                    horizon = replace(horizon, since=work.since)
                    dispatching.plan(session, horizon)
                seconds = _REST_SECONDS
                if not dispatching.backlog.parts:
                    seconds = max(seconds, _seconds_to_next(session, horizon))
            if dispatching.backlog.parts:
                run = replace(run, horizon=horizon)
                dispatching.run(session, run)
                moved_at = clock.seconds()
            if dispatching.goes_on:
                stop.waits.caught_up(clock.seconds() - now)
    except StoreError as error:
        # The next sweep sees it as well. The dispatched messages are to be settled.
        logs.warning("sweep_ends_early", sweep_id=str(run.sweep_id), error=str(error))
    return run


def _seconds_to_next(session: DriverSession, horizon: Horizon) -> float:
    """The time until a message comes due, within the time to the next look."""
    due = session.due.next_due(replace(horizon, since=horizon.before)).due
    seconds = _LOOK_SECONDS if due is None else (due - horizon.server_time).total_seconds()
    return min(seconds, _LOOK_SECONDS)


def _note(stop: Stop, ledger_error: object | None) -> None:
    """Tell a watcher since when rows have been waiting for the ledger."""
    if ledger_error is None:
        stop.waits.end(LEDGER)
    else:
        stop.waits.begin(LEDGER, str(ledger_error))


def _patience(context: SweepContext, stop: Stop, seconds: float) -> Patience:
    return Patience(0 if context.repeats else seconds, lambda: stop.is_wanted, context.world.clock)


def _close(
    session: DriverSession, run: SweepRun, cut_short: CutShort | None, *, is_planned: bool
) -> None:
    # Messages that an outage left may be due before its last plan.
    horizon = run.horizon.again
    if not session.sweeps.close(
        run.sweep_id,
        abandoned=False,
        # Without a plan no slice can tell.
        remaining=horizon if is_planned else session.due.count_pending(horizon, most=1),
        reason=cut_short and cut_short.reason,
    ):
        raise SweepClosedError(
            f"Another process closed sweep {run.sweep_id} of {session.source}: it was aborted, "
            "or taken for dead; messages that it dispatched stay dispatched, and the "
            "sweep counts as abandoned"
        )
