"""An open sweep: it plans, and dispatches in rounds, until it is closed; and the state that the
sweeps for one plan share.

A sweep that runs once has one round. A watcher's has more, for messages as they come due.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from duesweep.core import logs
from duesweep.core.account import SweepReport
from duesweep.core.errors import StoreError, SweepClosedError
from duesweep.core.world import STORE
from duesweep.stores.base import DriverSession
from duesweep.stores.due import Horizon, Slices
from duesweep.stores.sweeps import SweepRun
from duesweep.sweep.backlog import Backlog, Part
from duesweep.sweep.job import CutShort, Engine, Job, Planned, SweepContext, Tracing
from duesweep.sweep.rounds import Rounds
from duesweep.sweep.settler import Settler
from duesweep.sweep.stop import STORE_IS_SILENT, Stop

# For how long a watcher keeps a sweep open, at most and while nothing comes due. Messages that are
# in no ledger yet count as suspected after a disaster, and each sweep is two commits.
OPEN_SECONDS, _IDLE_SECONDS = 10.0, 1.0
# Each sweep differs in that, so that sweeps of a fleet do not end at the same time.
_LEAST_OPEN, _MOST_OPEN = 0.5, 1.5
# It rests after each round, and looks again in this time if nothing is due sooner.
_REST_SECONDS, _LOOK_SECONDS = 0.02, 0.1

Shown = Callable[[SweepRun, int], AbstractContextManager[object]]


@dataclass(slots=True)
class Sweeping:
    """The state of one call of `sweep`, for all its sweeps: its arguments, and the `backlog` of its
    plan. `planned` is not used yet; without it, messages due before `since` are held back at first.
    `last` is the last sweep, if it was opened. `are_held`: there are pauses; `has_left`: some
    messages were left, and are to be planned again soon; before `failed_at` no message failed.
    """

    engine: Engine
    context: SweepContext
    stop: Stop
    shown: Shown | None
    rounds: Rounds
    settler: Settler | None = None
    planned: Planned | None = None
    since: datetime | None = None
    backlog: Backlog = field(default_factory=Backlog)
    last: "OpenSweep | None" = None
    are_held: bool = False
    has_left: bool = False
    failed_at: float | None = None

    @contextmanager
    def begun(self) -> Iterator[DriverSession]:
        """Begin a sweep, with a session whose tables are checked: the planner's for the first one,
        else a new one.
        """
        self.last = None
        self.rounds.begin()
        planned, self.planned = self.planned, None
        if planned is not None:
            with planned.opened:
                yield planned.session
            return
        with self.context.store.open_driver() as session:
            session.check()
            yield session

    def take(self, horizon: Horizon, plan: Slices) -> None:
        """Sweep this plan, in parts."""
        self.backlog.take(horizon, plan, self.stop.shares(plan.planned))

    def note(self, report: SweepReport) -> None:
        """Note the end of a sweep."""
        self.rounds.note(report, is_part=self.backlog.is_later_part)
        self.has_left |= bool(report.left or report.skipped)
        if report.failed and self.failed_at is None:
            self.failed_at = self.rounds.began
        self.stop = self.stop.after(report.claimed)
        self.backlog.end_sweep()

    @property
    def seconds_to_next(self) -> float | None:
        """After how many seconds to sweep again; None: that is of no use, or not wanted."""
        if self.stop.is_wanted or (self.last is not None and self.last.cut_short):
            return None
        if not (self.backlog.parts or self.stop.may_claim):
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
        is_in_time = self.context.world.clock.seconds() + seconds < self.failed_at + back_off
        return seconds if is_in_time else None


class OpenSweep:
    """One open sweep. `is_planned`: it has a plan. `cut_short`: why it ended before all slices were
    done; None: all were.
    """

    def __init__(self, sweeping: Sweeping, session: DriverSession, horizon: Horizon) -> None:
        self._sweeping, self._session, self._context = sweeping, session, sweeping.context
        self._stop, self._limited = sweeping.stop, sweeping.rounds.limited
        # Its horizon moves with its last plan.
        self.run = session.sweeps.open(horizon, engine=sweeping.engine.name)
        sweeping.last = self
        self.is_planned = not self._stop.is_wanted
        self.cut_short: CutShort | None = None
        # Whether it may have another round.
        self._goes_on = False

    def dispatch(self) -> None:
        """Dispatch the next part of the plan, which is made if it is missing. A sweep that repeats
        then takes messages as they come due.
        """
        told = self._stop.passed_on(self._context.store, self._session.sweeps, self.run)
        with told, closing(self._sweeping.engine), closing(self._limited):
            if not self.is_planned:
                return
            if not self._sweeping.backlog.parts:
                self._plan(self.run.horizon)
            self._dispatch_part()
            self._go_on()
            self._leave_waiting()

    def _plan(self, horizon: Horizon) -> None:
        """Plan the messages that are due by the horizon."""
        with self._context.tracing.span("plan"):
            plan = self._sweeping.engine.plan(self._session.due, horizon, self._context)
            self._sweeping.take(horizon, plan)

    def _dispatch_part(self) -> None:
        """Dispatch the first part of the plan, if there is any."""
        self._goes_on = False
        if not self._sweeping.backlog.parts:
            return
        sweeps, sweep_id = self._session.sweeps, self.run.sweep_id
        if (seconds := self._stop.begin()) is not None:
            sweeps.stop(sweep_id, seconds)
        part = self._sweeping.backlog.next()
        job = self._job(part, first_slice=sweeps.note_slices(self.run, part.plan))
        shown = self._sweeping.shown
        showing = shown(self.run, part.plan.found) if shown else nullcontext()
        with self._context.tracing.span("dispatch"), showing:
            done = self._sweeping.engine.dispatch(self._session.due, part.plan, job)
            self.cut_short = done.cut_short
            if not self._context.repeats:
                self.cut_short = self._limited.finish(leaves=False) or self.cut_short
        if job.shares is not None:
            # It claims no more, and the rest counts as left by a stop.
            sweeps.stop(sweep_id, 0)
        elif self._may_go_on and done.end is not None and done.cut_short is None:
            waits = self._limited.is_waiting
            self._goes_on = self._sweeping.rounds.go_on(self.run.horizon, done.end, waits=waits)

    @property
    def _may_go_on(self) -> bool:
        is_whole = not self._sweeping.backlog.parts
        return self._context.repeats and is_whole and not self._sweeping.has_left

    def _job(self, part: Part, first_slice: int) -> Job:
        rounds = self._sweeping.rounds
        return Job(
            # Its class and its secrets are not for executors.
            replace(self._context, tracing=Tracing()),
            self.run,
            shares=part.shares,
            first_slice=first_slice,
            outages=rounds.outages,
            tries_in=rounds.low_water.seconds_to_try,
            limited=self._limited,
            stop=self._stop,
        )

    def _go_on(self) -> None:
        """Dispatch messages as they come due, in the same sweep: with a sweep for each round, they
        would wait for the ledger, which would get 100,000 commits a day. It ends after some
        seconds, even if messages wait for their limit; when messages that an outage left are to be
        tried, as it has counted them; and at once if a round leaves others.
        """
        stop, clock, limited = self._stop, self._context.world.clock, self._limited
        low_water, due = self._sweeping.rounds.low_water, self._session.due
        began = moved_at = clock.seconds()
        most = OPEN_SECONDS * self._context.world.chance().uniform(_LEAST_OPEN, _MOST_OPEN)
        seconds = _REST_SECONDS
        try:
            while self._goes_on:
                stop.wait(seconds)
                now = clock.seconds()
                ends_at = began + most
                if limited.has_left:
                    break
                if not limited.is_waiting:
                    low_water.release()
                    ends_at = min(ends_at, moved_at + _IDLE_SECONDS)
                if stop.is_wanted or now >= (low_water.tries_at or ends_at):
                    break
                with stop.waits.waiting(STORE, STORE_IS_SILENT):
                    horizon = self._context.reach(due.horizon())
                    # A plan takes several times as long as this look.
                    work = low_water.find_work(due, horizon)
                    if work is not None and not work.only_settles:
                        horizon = replace(horizon, since=work.since)
                        self._plan(horizon)
                    seconds = _REST_SECONDS
                    if not self._sweeping.backlog.parts:
                        seconds = max(seconds, _seconds_to_next(self._session, horizon))
                if self._sweeping.backlog.parts:
                    self.run = replace(self.run, horizon=horizon)
                    self._dispatch_part()
                    moved_at = clock.seconds()
                if self._goes_on:
                    stop.waits.caught_up(clock.seconds() - now)
        except StoreError as error:
            # The next sweep sees it as well. The dispatched messages are to be settled.
            logs.warning("sweep_ends_early", sweep_id=str(self.run.sweep_id), error=str(error))

    def _leave_waiting(self) -> None:
        """Leave the messages that wait for their limit."""
        if self._limited.is_waiting:
            with suppress(StoreError):
                # They count as left by a stop.
                self._session.sweeps.stop(self.run.sweep_id, 0)
        self.cut_short = self._limited.finish(leaves=True) or self.cut_short

    def close(self, session: DriverSession) -> None:
        """Close it on this session. Raises `SweepClosedError` if another process has done that."""
        # Messages that an outage left may be due before its last plan.
        horizon = self.run.horizon.again
        if not session.sweeps.close(
            self.run.sweep_id,
            abandoned=False,
            # Without a plan no slice can tell.
            remaining=horizon if self.is_planned else session.due.count_pending(horizon, most=1),
            reason=self.cut_short and self.cut_short.reason,
        ):
            raise SweepClosedError(
                f"Another process closed sweep {self.run.sweep_id} of {session.source}: it was "
                "aborted, or taken for dead; messages that it dispatched stay dispatched, and the "
                "sweep counts as abandoned"
            )


def _seconds_to_next(session: DriverSession, horizon: Horizon) -> float:
    """The time until a message comes due, within the time to the next look."""
    due = session.due.next_due(replace(horizon, since=horizon.before)).due
    seconds = _LOOK_SECONDS if due is None else (due - horizon.server_time).total_seconds()
    return min(seconds, _LOOK_SECONDS)
