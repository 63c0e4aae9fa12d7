"""A watcher: look at the store, sweep due messages, report, wait, again and again.

Between ticks it keeps only how to wait, and the breakers: its work is in the store, the journal
and the ledger. So it may die at any time, and any number of watchers may serve one
endpoint.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta

from duesweep.core import logs
from duesweep.core.account import SweepReport
from duesweep.core.errors import (
    NO_DESCRIPTORS,
    ConfigError,
    DuesweepError,
    ExitCode,
    LedgerError,
    SparkError,
    StoreError,
    lacks_descriptors,
    make_printable,
)
from duesweep.core.policy import (
    LEAST_WAIT_SECONDS,
    MOST_WAIT_AFTER_ERRORS_SECONDS,
    MOST_WAIT_FOR_LEDGER_SECONDS,
    MOST_WAIT_FOR_LOCKED_SECONDS,
    LookAhead,
    wait_after,
    wait_for_next,
)
from duesweep.core.result import exit_code_of
from duesweep.core.world import LEDGER, QUEUES, STORAGE, STORE, Wait, Waits
from duesweep.operations.look import Look, check, look
from duesweep.operations.opening import choose_engine
from duesweep.operations.run import Run, failed_run, sweep_seen
from duesweep.stores.base import DriverSession
from duesweep.sweep.job import SweepContext
from duesweep.sweep.rounds import Rounds
from duesweep.sweep.settler import Settler
from duesweep.sweep.stop import STORE_IS_SILENT, Stop

# A longer tick would make a working watcher look like one that hangs.
MOST_TICK_SECONDS = 60.0
# While nothing is due, pauses and back-offs are read this often.
_WHOLE_LOOK_SECONDS = 1.0
_LOG_EVERY_SECONDS = 60.0
# The main thread wakes at this interval, as only it can handle signals.
_POLL_SECONDS = 0.2

# Gets each tick, also one that an error ended. It must not raise, nor take long.
Observer = Callable[[Run], object]


class Ticker:
    """Sweeps one store again and again, in this process. With `has_spark`, a session that others
    have prepared, or if a setting demands Spark, it sweeps on Spark if there is enough for Spark.

    It never looks ahead: messages are sent when they are due.
    """

    def __init__(
        self,
        context: SweepContext,
        stop: Stop,
        *,
        has_spark: bool,
    ) -> None:
        self._stop = stop
        choice = choose_engine(context, prefers_session=False)
        may_be_sparks = has_spark or choice.needs_spark
        # Without Spark there the due messages need not be counted.
        self._choice = choice if may_be_sparks else replace(choice, spark_from=None)
        self._context = replace(context, look_ahead=LookAhead(), repeats=True)
        self._rounds = Rounds(context.breaker, context.world.clock, never_ends=True)
        # A session of Spark is for one thread.
        self._settler = None if may_be_sparks else Settler(self._context, stop)
        self._sessions = ExitStack()
        self._session: DriverSession | None = None
        # Whether the store has let it in.
        self.was_let_in = False
        # The last whole look, if it found no work, and when that was.
        self._idle: tuple[Look, float] | None = None

    @property
    def source(self) -> str:
        """The stable name of the store."""
        return self._context.store.source

    @property
    def _settles(self) -> bool:
        """Whether its sweeps settle: a first one does, as it may have to create the ledger."""
        return self._settler is None or not self._settler.is_running

    @property
    def is_looking(self) -> bool:
        """Whether it has waited long for its services, while it held no message."""
        is_settling = self._settler is None or self._settler.is_alone
        services = {STORE, QUEUES, STORAGE} if is_settling else {STORE, QUEUES}
        return any(each.what in services for each in self._stop.waits.long())

    def tick(self) -> Run:
        """Look, and plan and sweep for `MOST_TICK_SECONDS` if there is work. Raises its errors."""
        began = time.monotonic()
        return replace(self._tick(), seconds=time.monotonic() - began)

    def close(self) -> None:
        """Settle what there is, and close the sessions."""
        self._close_session()
        if self._settler is not None:
            self._settler.close()

    def _close_session(self) -> None:
        self._sessions.close()
        self._session = self._idle = None

    def _tick(self) -> Run:
        context = self._context
        # Without the time limit: a look that takes long is no reason to leave its findings.
        with self._stop.waits.waiting(STORE, STORE_IS_SILENT):
            seen = self._look(self._stop.part())
        stop = self._stop.part(lasting=MOST_TICK_SECONDS)
        try:
            if seen.has_work and not stop.is_wanted:
                assert self._session is not None  # it has looked
                # Tables and rights may have changed since the session was opened.
                with self._stop.waits.waiting(QUEUES, "The queues' servers have not answered yet"):
                    check(self._session, context)
            run = sweep_seen(
                context,
                seen,
                stop,
                rounds=self._rounds,
                settler=self._settler,
            )
        except BaseException:
            # So that a sweep which it leaves counts as dead.
            self._close_session()
            raise
        return self._settle_beside(seen, run)

    def _settle_beside(self, seen: Look, run: Run) -> Run:
        """Wake the settler if there is work for it. A run that found nothing to deliver says why
        the ledger is behind, or raises that if it is a `ConfigError`.
        """
        error = self._settler and self._settler.error
        if self._settler is not None and (seen.has_work or seen.has_unsettled or error):
            self._settler.wake()
        elif not seen.has_work:
            # Others have settled the rows that waited for the ledger.
            self._stop.waits.end(LEDGER)
        if error is None or run.report is not None:
            return run
        if isinstance(error, ConfigError):
            raise error
        return replace(run, exit_code=exit_code_of(error), error=str(error))

    def _look(self, stop: Stop) -> Look:
        """Look with the session that is there, if that still works, else with a new one. To open
        and check one takes longer than all the rest of a look.
        """
        if self._session is not None:
            try:
                return self._look_again(self._session, stop)
            except StoreError:
                self._close_session()
        try:
            self._session = self._sessions.enter_context(self._context.store.open_driver())
            self.was_let_in = True
            check(self._session, self._context)
            return self._look_again(self._session, stop)
        except BaseException:
            self._close_session()
            raise

    def _look_again(self, session: DriverSession, stop: Stop) -> Look:
        """A whole look, or the last one if it is not old and there is still no work."""
        seconds, low_water = self._context.world.clock.seconds(), self._rounds.low_water
        low_water.begin()
        if self._idle is not None:
            seen, at = self._idle
            is_new = seconds - at < _WHOLE_LOOK_SECONDS
            work = low_water.find_work(session.due, session.due.horizon()) if is_new else None
            if is_new and (work is None or (work.only_settles and not self._settles)):
                seen = replace(seen, has_unsettled=work is not None)
                return seen.later(timedelta(seconds=seconds - at))
        # The sweep continues with the session, which stays open after it.
        opened = None if self._settler is None else ExitStack()
        seen = look(
            session,
            self._context,
            self._choice,
            stop,
            opened=opened,
            settles=self._settles,
            low_water=low_water,
        )
        self._idle = None if seen.has_work else (seen, seconds)
        return seen


@dataclass(slots=True)
class _Row:
    """How many ticks in a row failed, and how many moved nothing although something was due."""

    failed: int = 0
    moved_nothing: int = 0


def watch(
    source: str,
    tick: Callable[[], Run],
    stop: Stop,
    observers: Sequence[Observer],
    *,
    most_seconds: float,
    may_wait: Callable[[], bool] = lambda: False,
) -> None:
    """Tick until `stop` is wanted, and wait `most_seconds` at most between two ticks.

    Raises `ConfigError` if the first tick does, since then a person is there to correct it; after a
    later one it waits, as a database that is restored lacks its tables for a while. If it
    `may_wait`, as one of several, it waits after that one too, and raises the error in the end
    if no tick was without one. Raises `SparkError`: a session that is lost does not come back in
    its process.
    """
    row, is_first = _Row(), True
    wrong: ConfigError | None = None
    while not stop.is_wanted:
        began = time.monotonic()
        try:
            run = tick()
        except SparkError:
            raise
        except (DuesweepError, OSError) as error:
            if isinstance(error, ConfigError) and (is_first or wrong is not None):
                if not may_wait():
                    raise
                wrong = error
            run = failed_run(source, _known(error), time.monotonic() - began)
            row.failed += 1
            # Messages that come due do not need the ledger.
            is_ledgers = isinstance(error, LedgerError)
            most = MOST_WAIT_FOR_LEDGER_SECONDS if is_ledgers else MOST_WAIT_AFTER_ERRORS_SECONDS
            seconds = wait_after(row.failed, most)
        else:
            wrong = None
            seconds = _seconds_after(run, row, most_seconds)
        for observer in observers:
            observer(run)
        is_first = False
        stop.wait(seconds)
    if wrong is not None:
        raise wrong


def _known(error: DuesweepError | OSError) -> DuesweepError:
    """The same error; of a file or a socket, only the lack of descriptors, which passes."""
    if isinstance(error, DuesweepError):
        return error
    if not lacks_descriptors(error):
        raise error
    return StoreError.of(NO_DESCRIPTORS, transient=True)


def _seconds_after(run: Run, row: _Row, most_seconds: float) -> float:
    report, row.failed = run.report, 0
    if report is None:
        row.moved_nothing = 0
        due = run.next_due
        is_behind = run.ledger_error is not None and due is None
        most = MOST_WAIT_FOR_LEDGER_SECONDS if is_behind else most_seconds
        return wait_for_next(due and due.instant, due and due.now, most)
    row.moved_nothing = 0 if run.has_moved else row.moved_nothing + 1
    if run.has_moved and not (report.left or report.skipped):
        return LEAST_WAIT_SECONDS
    most = max(most_seconds, MOST_WAIT_FOR_LOCKED_SECONDS)
    seconds = wait_after(
        row.moved_nothing, MOST_WAIT_FOR_LOCKED_SECONDS if report.skipped else most
    )
    # A sweep that stayed open, during an outage or for a limit, has waited already.
    has_waited = run.has_moved or run.is_caught_up
    return max(LEAST_WAIT_SECONDS, seconds - run.seconds) if has_waited else seconds


def watch_all(
    watches: Sequence[tuple[str, Callable[[], None]]],
    look_after: Callable[[], object] = lambda: None,
    may_be_left: Callable[[int], bool] = lambda _: False,
) -> list[int]:
    """Run all until they end, each of a source and in a thread; their exit codes. Raises the error
    of a single one; the error of one of several is logged, and the others continue.

    This thread waits for nothing else, so that signals take effect at once. It calls `look_after`
    again and again, and does not wait for a watch that, by its number, `may_be_left`.
    """
    errors: list[Exception] = []
    threads = [
        threading.Thread(
            target=_watch_one,
            args=(each, errors, source if len(watches) > 1 else None),
            name=f"duesweep watch {number}",
            daemon=True,
        )
        for number, (source, each) in enumerate(watches)
    ]
    for thread in threads:
        thread.start()
    for number, thread in enumerate(threads):
        while thread.is_alive() and not may_be_left(number):
            look_after()
            thread.join(_POLL_SECONDS)
    if errors and len(watches) == 1:
        raise errors[0]
    return [exit_code_of(error) for error in errors] or [ExitCode.DONE]


def _watch_one(watch: Callable[[], None], errors: list[Exception], source: str | None) -> None:
    try:
        watch()
    except Exception as error:  # noqa: BLE001 - of whatever kind: the others continue
        errors.append(error)
        if source is None:
            return
        if isinstance(error, DuesweepError):
            logs.error("watch_ended", source=source, error=make_printable(str(error)))
        else:
            logs.exception("watch_ended", source=source)


class Log:
    """An observer that logs a line a minute about moved messages, and one if things go wrong or
    right again. `close` logs the rest. `look` has to be called now and then, by another
    thread, which does not wait.
    """

    def __init__(self, source: str, waits: Waits | None = None) -> None:
        self._source = source
        self._waits = waits or Waits()
        self._told: dict[str, Wait] = {}
        self._error: str | None = None
        self._since = time.monotonic()
        self._moved: Counter[str] = Counter()
        self._latest_ms: int | None = None

    def __call__(self, run: Run) -> None:
        """Count moved messages; report an error once for as long as it stays the same, and that it
        has passed. That rows wait for the ledger is one of the waits.
        """
        self._note(run.error if run.is_lost else None)
        if run.report is not None:
            self._count(run.report)
        if not run.is_lost and time.monotonic() - self._since >= _LOG_EVERY_SECONDS:
            self.close()

    def look(self) -> None:
        """Tell each wait once that takes long, and its end."""
        long = {each.what: each for each in self._waits.long()}
        told, self._told = self._told, long
        for what, wait in long.items():
            if what not in told or told[what].since != wait.since:
                why = make_printable(wait.why)
                logs.warning("waiting", source=self._source, waits_for=what, reason=why)
        for what, wait in told.items():
            if what not in long:
                seconds = round(wait.seconds, 1)
                logs.info("waited", source=self._source, waits_for=what, seconds=seconds)

    def close(self) -> None:
        """Log the messages moved since the last time, if any."""
        took, self._since = time.monotonic() - self._since, time.monotonic()
        if not self._moved:
            return
        logs.info(
            "swept",
            source=self._source,
            **self._moved,
            lateness_max_ms=self._latest_ms,
            seconds=round(took, 1),
        )
        self._moved, self._latest_ms = Counter(), None

    def _count(self, report: SweepReport) -> None:
        self._moved.update(
            sweeps=1,
            dispatched=report.dispatched,
            failed=report.failed,
            exhausted=report.exhausted,
        )
        known = [ms for ms in (self._latest_ms, report.lateness_max_ms) if ms is not None]
        self._latest_ms = max(known, default=None)

    def _note(self, error: str | None) -> None:
        if error == self._error:
            return
        if error is not None:
            logs.error("trouble", source=self._source, error=make_printable(error))
        else:
            logs.info("trouble_is_over", source=self._source)
        self._error = error
