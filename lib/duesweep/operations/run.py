"""One run of `sweep`: a look at the store, a sweep if there is work, and how it ended; of one
endpoint or of several side by side.

Of several, this process sweeps small ones, while Spark sweeps large ones. Each of these is a
Spark job of its own, and they run at once in one session: so no core waits for the end of one while
another has slices left, and each keeps its own plan, account and end.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from duesweep import config as configuration
from duesweep.core.account import SweepReport
from duesweep.core.errors import (
    DuesweepError,
    ExitCode,
    NothingDueError,
    Problem,
    QueueError,
    StoreError,
    TransactionLostError,
)
from duesweep.core.held_back import HeldBack, held_by_lock, held_in_sweep
from duesweep.core.result import Result, exit_code_of
from duesweep.operations.endpoint import Endpoint
from duesweep.operations.look import (
    Look,
    NextDue,
    StillDue,
    look_at,
    look_at_due,
)
from duesweep.operations.opening import choose_engine, open_spark, opened_engine
from duesweep.stores.due import LockedRows
from duesweep.sweep.job import SweepContext
from duesweep.sweep.stop import Stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from duesweep.sweep.open_sweep import Shown
    from duesweep.sweep.rounds import Rounds
    from duesweep.sweep.settler import Settler

T = TypeVar("T")

# This many endpoints of one database at once: a sweep has up to four connections, and waits for
# the database most of the time.
_AT_ONCE = 4
_MOST_THREADS = 32
# Enough that the cores always have a slice to work on, and that a driver's memory holds the plans.
_ON_SPARK_AT_ONCE = 4
# A thread that has seen this many endpoints of a database fail, one after another, gives it up.
_GIVES_UP_AFTER = 2

# Called with the looks, before anything is swept. Its errors end the run.
Before = Callable[[Sequence[tuple[Endpoint, Look]]], object]


@dataclass(frozen=True, slots=True)
class Run(Result):
    """The result of one run. `outcome` is the sweep's; `idle`: it had no work; `stopped`
    without a report: a stop was wanted before the sweep began; `error`: an error ended it.

    `next_due` and `next_attempt`, the next message in back-off, are known only if it was idle.
    `notices` are possible faults that the look found. `error` says what ended it, or why work is
    left. `without_spark`: why Spark, which was to dispatch, did not. `due` are the messages due
    after it, if asked for.
    """

    source: str
    outcome: str
    exit_code: int = 0
    seconds: float = 0.0
    report: SweepReport | None = None
    next_due: NextDue | None = None
    next_attempt: NextDue | None = None
    held_back: Sequence[HeldBack] = ()
    notices: Sequence[Problem] = ()
    error: str | None = None
    without_spark: Problem | None = None
    ended: datetime = field(default_factory=lambda: datetime.now(UTC))
    due: StillDue | None = None

    @property
    def is_lost(self) -> bool:
        """Whether an error ended it."""
        return self.outcome == "error"

    @property
    def ledger_error(self) -> str | None:
        """Why the ledger has not got all that the journal has; messages go anyway."""
        if self.report is not None:
            return self.report.ledger_error
        return None if self.is_lost else self.error

    @property
    def is_late(self) -> bool:
        """Whether it missed its objective."""
        return self.report is not None and self.report.is_late

    @property
    def has_moved(self) -> bool:
        """Whether any message left the store, or counted a failure."""
        return self.report is not None and self.report.claimed > 0

    @property
    def is_caught_up(self) -> bool:
        """Whether it left no message that could have been delivered. Messages that wait for an open
        breaker could not.
        """
        report = self.report
        if report is None:
            return self.outcome == "idle"
        blocked = sum(each.left for each in report.breakers if not each.is_closed)
        return report.skipped == 0 and report.left <= blocked


def ended_run(report: SweepReport) -> Run:
    """The run of a sweep that has ended."""
    is_cut = report.outcome == "incomplete"
    error = report.ledger_error or (report.reason if is_cut else None)
    return Run(report.source, report.outcome, int(exit_code_of(report)), report=report, error=error)


def failed_run(source: str, error: Exception, seconds: float = 0.0) -> Run:
    """The run of an endpoint that an error ended."""
    outcome = "idle" if isinstance(error, NothingDueError) else "error"
    return Run(source, outcome, int(exit_code_of(error)), seconds=seconds, error=str(error))


def with_due(endpoint: Endpoint, run: Run) -> Run:
    """The run with the messages due now. A store that was out of reach just now would cost another
    wait, so it is not asked.
    """
    if run.exit_code == ExitCode.WORK_LEFT and run.report is None:
        return run
    return replace(run, due=look_at_due(endpoint.context.store))


def _tell_nobody(_: object) -> None:
    """For a run without such a call."""


def sweep(
    endpoint: Endpoint, *, max_seconds: float | None = None, max_messages: int | None = None
) -> Run:
    """Move the messages that are due now. If messages failed or work is left, this does not
    raise: see the run's `exit_code`, `error` and `report`. `report` None: nothing was due.
    """
    at = None if max_seconds is None else time.time() + max_seconds
    return run_once(endpoint, Stop(at, max_messages))


def run_once(
    endpoint: Endpoint,
    stop: Stop | None = None,
    *,
    before: Before = _tell_nobody,
    shown: "Shown | None" = None,
) -> Run:
    """Look, and sweep if there is work, on Spark if that is much or the endpoint has a session:
    `look_at` in look.py, then `sweep_seen`, which calls `sweep` in sweep/sweep.py. Raises their
    errors.
    """
    began, stop, context = time.monotonic(), stop or Stop(), endpoint.context
    with look_at(context, choose_engine(context, endpoint.spark), stop, plans=True) as found:
        look = _with_notice(endpoint, found)
        before([(endpoint, look)])
        run = sweep_seen(context, look, stop, spark=endpoint.spark, shown=shown)
    return replace(run, seconds=time.monotonic() - began)


def _with_notice(endpoint: Endpoint, look: Look) -> Look:
    """A look, with the notice about the settings."""
    notice = configuration.route_notice(endpoint.config)
    return look if notice is None else replace(look, notices=[notice, *look.notices])


def sweep_seen(
    context: SweepContext,
    look: Look,
    stop: Stop,
    *,
    spark: "SparkSession | DuesweepError | None" = None,
    shown: "Shown | None" = None,
    rounds: "Rounds | None" = None,
    settler: "Settler | None" = None,
) -> Run:
    """The run after a look: sweep if there is work, and no stop is wanted. `spark`: see
    `opened_engine`. `rounds` and `settler` are a watcher's.
    """
    source, notices = context.store.source, look.notices
    # A sweep that this process has not reported is reported with the next one.
    if not look.has_work and not stop.unreported_of(source):
        return Run(
            source,
            "idle",
            next_due=look.next_due,
            next_attempt=look.next_attempt,
            held_back=look.held_back,
            notices=notices,
        )
    if stop.is_wanted:
        return Run(source, "stopped", notices=notices)
    from duesweep.sweep.sweep import sweep  # noqa: PLC0415 - a run without work does without

    try:
        with opened_engine(context, on_spark=look.needs_spark, spark=spark) as engine:
            without_spark = engine.without_spark
            report = sweep(
                engine,
                context,
                shown,
                stop=stop,
                planned=look.planned,
                since=look.since,
                rounds=rounds,
                settler=settler,
            )
    except NothingDueError as error:
        return replace(failed_run(source, error), notices=notices)
    locked: Sequence[LockedRows] = ()
    if report.skipped:
        # None if the store does not answer.
        with suppress(DuesweepError), context.store.open_driver() as session:
            locked = session.due.locked(session.due.horizon())
    seconds = context.objective_seconds
    is_stuck = seconds is not None and any(one.due_seconds > seconds for one in locked)
    report = replace(report, is_late=report.is_late or is_stuck)
    return replace(
        ended_run(report),
        held_back=[
            *held_in_sweep(look.pauses, report.breakers, report.over_limit),
            *(held_by_lock(one.messages, one.holder, one.since) for one in locked),
        ],
        notices=notices,
        without_spark=without_spark,
    )


@dataclass(slots=True)
class _Turn:
    """An endpoint of several. `seconds` are the time of its own work, not of its waiting."""

    endpoint: Endpoint
    look: Look | None = None
    seconds: float = 0.0

    @property
    def server(self) -> str:
        """The same for all endpoints of one database."""
        return self.endpoint.config.store.dsn.get_secret_value()

    @contextmanager
    def timed(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - began

    def look_at(self, stop: Stop) -> None:
        """Look. An existing session is no reason to sweep a small endpoint on Spark."""
        context = self.endpoint.context
        choice = choose_engine(context, prefers_session=False)
        with self.timed(), look_at(context, choice, stop.part()) as found:
            self.look = _with_notice(self.endpoint, found)

    def sweep(self, stop: Stop, spark: "SparkSession | DuesweepError | None" = None) -> Run:
        assert self.look is not None
        with self.timed():
            run = sweep_seen(self.endpoint.context, self.look, stop.part(), spark=spark)
        return replace(run, seconds=self.seconds)

    def failed(self, error: DuesweepError) -> Run:
        return failed_run(self.endpoint.source, error, self.seconds)


def run_all(
    endpoints: Sequence[Endpoint], stop: Stop, *, before: Before = _tell_nobody
) -> list[tuple[Endpoint, Run]]:
    """Run for each endpoint; an error of one does not affect the others."""
    turns = [_Turn(each) for each in endpoints]
    looked = side_by_side([(each.server, partial(each.look_at, stop)) for each in turns])
    runs: list[tuple[_Turn, Run]] = []
    on_spark: list[_Turn] = []
    others: list[_Turn] = []
    for turn, error in zip(turns, looked, strict=True):
        if turn.look is None or error is not None:
            assert error is not None
            runs.append((turn, turn.failed(error)))
        elif turn.look.has_work and turn.look.needs_spark:
            on_spark.append(turn)
        else:
            others.append(turn)
    before([(each.endpoint, each.look) for each in turns if each.look is not None])
    with ThreadPoolExecutor(1, thread_name_prefix="duesweep fleet on Spark") as pool:
        spark = pool.submit(_run_on_spark, on_spark, stop)
        done = side_by_side([(each.server, partial(each.sweep, stop)) for each in others])
        runs += [
            (turn, turn.failed(run) if isinstance(run, DuesweepError) else run)
            for turn, run in zip(others, done, strict=True)
        ]
        runs += spark.result()
    return [(turn.endpoint, run) for turn, run in runs]


def _run_on_spark(turns: Sequence[_Turn], stop: Stop) -> list[tuple[_Turn, Run]]:
    if not turns or stop.is_wanted:
        return [(each, Run(each.endpoint.source, "stopped")) for each in turns]
    spark: SparkSession | DuesweepError
    try:
        spark = open_spark()
    except DuesweepError as error:
        # Each sweeps without, if it can.
        spark = error
    # The long ones first: the short ones fill the cores at the end.
    ordered = sorted(turns, key=_due, reverse=True)
    work = partial(_sweep_or_fail, stop=stop, spark=spark)
    with ThreadPoolExecutor(_ON_SPARK_AT_ONCE, "duesweep fleet job") as pool:
        return list(zip(ordered, pool.map(work, ordered), strict=True))


def _due(turn: _Turn) -> int:
    assert turn.look is not None
    context = turn.endpoint.context
    try:
        with context.store.open_driver() as session:
            horizon = replace(context.reach(session.due.horizon()), since=turn.look.since)
            return session.due.count_pending(horizon)
    except DuesweepError:
        # Its own sweep tells.
        return 0


def _sweep_or_fail(turn: _Turn, stop: Stop, spark: "SparkSession | DuesweepError") -> Run:
    try:
        return turn.sweep(stop, spark)
    except DuesweepError as error:
        return turn.failed(error)


def side_by_side(jobs: Sequence[tuple[str, Callable[[], T]]]) -> list[T | DuesweepError]:
    """Do the work of all, each given with its database, some at once, and return the results in the
    order of the jobs.

    If the work for a database fails again and again because it is out of reach, the rest of it
    is not tried: each would wait as long for nothing. An error that is not duesweep's own is
    raised, after all others have ended.
    """
    servers: dict[str, deque[tuple[Callable[[], T], Future[T | DuesweepError]]]] = {}
    results: list[Future[T | DuesweepError]] = []
    for server, work in jobs:
        results.append(Future())
        servers.setdefault(server, deque()).append((work, results[-1]))
    most = max(1, min(_AT_ONCE, _MOST_THREADS // max(1, len(servers))))
    threads = min(_MOST_THREADS, sum(min(most, len(waiting)) for waiting in servers.values()))
    with ThreadPoolExecutor(max(1, threads), thread_name_prefix="duesweep fleet") as pool:
        for _ in range(most):
            for waiting in servers.values():
                pool.submit(_work_off, waiting)
    return [result.result() for result in results]


def _work_off(waiting: "deque[tuple[Callable[[], T], Future[T | DuesweepError]]]") -> None:
    lost = 0
    while True:
        try:
            work, result = waiting.popleft()
        except IndexError:
            return
        try:
            result.set_result(work())
            lost = 0
        except DuesweepError as error:
            result.set_result(error)
            # A lost transaction says that the database answers.
            answers = isinstance(error, QueueError | TransactionLostError)
            is_lost = isinstance(error, StoreError) and not answers and error.transient
            lost = lost + 1 if is_lost else 0
            if lost == _GIVES_UP_AFTER:
                _give_up(waiting, error)
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            result.set_exception(error)


def _give_up(
    waiting: "deque[tuple[Callable[[], T], Future[T | DuesweepError]]]", error: DuesweepError
) -> None:
    untried = StoreError(
        f"It was not tried, since other endpoints of the same database failed: {error.text}",
        transient=True,
        advice=error.advice,
    )
    with suppress(IndexError):
        while True:
            _, result = waiting.popleft()
            result.set_result(untried)
