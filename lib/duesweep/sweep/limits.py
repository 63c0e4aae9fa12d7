"""Messages that wait for a `[[limit]]`, and when they may go.

A session of a slice does not wait: when nothing else is left to do, it returns its work. In this
process one thread then lets the waiting messages of all slices go, while the sweep continues. A
task of Spark does that itself.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import NamedTuple

from duesweep.core.errors import (
    ConfigError,
    DuesweepError,
    StoreError,
    SweepClosedError,
    SweepStoppedError,
    make_printable,
)
from duesweep.core.message import Address
from duesweep.core.policy import RateLimit, RateLimits
from duesweep.core.world import Clock
from duesweep.stores.task import TaskSession
from duesweep.sweep.claim_keys import ClaimKeys
from duesweep.sweep.job import CutShort, Job
from duesweep.sweep.sessions import OpenedSessions, Sessions, opened_sessions
from duesweep.sweep.slice import Slice, Worker, collect_rarely, cut_short_by, journal_ends

# How often to ask the store whether the sweep is to stop, and to look whether this process is to
# wait no longer.
_ASK_SECONDS, _NAP_SECONDS = 1.0, 0.05
# A rest that rounding leaves would not move a clock.
_LEAST_WAIT_SECONDS = 0.001
# An interrupted sweep waits at most this long for the current batch.
INTERRUPTED_SECONDS = 0.5
# A signal that comes right before a wait does not end it: its exception is raised after the wait.
SIGNAL_SECONDS = 0.5

_NEVER = float("inf")
# A reservation that is used later than this would add to the next second's. Reserved
# and late messages add up to less than the limit.
_LONGEST_LATE_SECONDS = 0.05

_log = logging.getLogger(__name__)


class Reservation(NamedTuple):
    """`messages` messages may go to `address` from `at` on, by the process's clock."""

    address: Address
    messages: int
    at: float


class Reservations:
    """The reservations of one process: for each limit, one at most at any time. They outlive
    sweeps: one may end before the time of a reservation has come.
    """

    def __init__(self, limits: RateLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._by_limit: dict[RateLimit, Reservation] = {}
        # The limits whose last reservation was not used, because its time was over.
        self._dropped: set[RateLimit] = set()

    def reserve(
        self, waiting: Mapping[Address, int], ask: Callable[[RateLimit, int], float]
    ) -> None:
        """Reserve for destinations with these numbers of waiting messages. `ask` reserves that many
        at the store, and returns after how many seconds they may go.
        """
        for address, count in waiting.items():
            limit = self._limits.of(address)
            if limit is None or limit in self._by_limit:
                continue
            messages = min(count, limit.at_once)
            seconds = ask(limit, messages)
            # By the time after the answer, which may have been awaited.
            at = self._clock.seconds() + seconds
            self._by_limit[limit] = Reservation(address, messages, at)

    def due(self, waiting: Collection[Address]) -> list[Reservation]:
        """Use up the reservations for these destinations whose time has come. Late ones are
        dropped, but no two in a row of a limit: if all are late, messages still go.
        """
        found: list[Reservation] = []
        now = self._clock.seconds()
        for limit, each in [*self._by_limit.items()]:
            is_late = now - each.at > _LONGEST_LATE_SECONDS
            if each.at > now or not (each.address in waiting or is_late):
                continue
            del self._by_limit[limit]
            if is_late and limit not in self._dropped:
                self._dropped.add(limit)
                continue
            self._dropped.discard(limit)
            if each.address in waiting:
                found.append(each)
        return found

    @property
    def seconds_to_next(self) -> float:
        """After how many seconds the next reservation may be used; infinite: none may."""
        at = min((each.at for each in self._by_limit.values()), default=_NEVER)
        return max(0.0, at - self._clock.seconds())


class Limited:
    """The work of slices whose messages wait for their limit. A thread lets them go, with sessions
    of its own: there is one as long as messages wait. It outlives a sweep, and its reservations
    count for the next one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: list[Worker] = []
        self._is_running = self._leaves = self._is_awaited = False
        # Whether messages were left when it was their turn, or with work that was cut.
        self.has_left = False
        # Of each thread: why it was cut short.
        self._ends: list[Future[CutShort | None]] = []
        self._reservations: Reservations | None = None
        # When to ask the store whether the sweep is to stop, if no batch asks before.
        self._asks_at = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether messages wait for their limit."""
        return self._is_running

    def add(self, worker: Worker, opened: OpenedSessions) -> None:
        """Let the messages go that wait in this work. Raises `SystemExit` if its slice has been
        interrupted: the next sweep may have begun.
        """
        worker.of_slice.check()
        if self._hold(worker):
            end: Future[CutShort | None] = Future()
            try:
                self._start(partial(self._run_to_end, opened, worker.of_slice, end))
            except BaseException:
                # A process may have as many threads as it is allowed.
                self._fail(self._workers)
                raise
            self._ends.append(end)

    def run_now(self, worker: Worker, opened: OpenedSessions) -> None:
        """Let the messages go that wait in this work, and wait for that; see `run`."""
        self._is_awaited = True
        self._hold(worker)
        self.run(opened)

    def _hold(self, worker: Worker) -> bool:
        """Add this work. Returns whether `run` is to be called for it."""
        with self._lock:
            self._workers.append(worker)
            is_first, self._is_running = not self._is_running, True
            return is_first

    def finish(self, *, leaves: bool) -> CutShort | None:
        """End when all messages have gone, or are to be left by a stop; or at once, if it `leaves`
        them. Returns why it was cut short; None: it was not.
        """
        self._leaves, self._is_awaited = leaves, not leaves
        try:
            self._join()
            found = [end.result() for end in self._ends]
        finally:
            self._leaves = self._is_awaited = self.has_left = False
        self._ends.clear()
        return next(filter(None, found), None)

    def close(self) -> None:
        """If messages wait still, as after an error, end after the current batch. Their slices
        count as cut.
        """
        for worker in [*self._workers]:
            worker.of_slice.interrupt()
        wait(self._ends, INTERRUPTED_SECONDS)
        self._ends.clear()
        with self._lock:
            # A thread whose store does not answer keeps the old list; the next sweep has its own.
            self._workers, self._is_running = [], False
        self._leaves = self._is_awaited = self.has_left = False

    def _start(self, work: Callable[[], None]) -> None:
        # A daemon: a process that is to end at once does not wait for it.
        threading.Thread(target=work, name="duesweep limits", daemon=True).start()

    def _join(self) -> None:
        while wait(self._ends, SIGNAL_SECONDS).not_done:
            pass

    def _run_to_end(
        self, opened: OpenedSessions, first: Slice, end: Future[CutShort | None]
    ) -> None:
        try:
            self.run(opened)
            end.set_result(None)
        except Exception as error:  # noqa: BLE001 - of whatever kind
            try:
                end.set_result(cut_short_by(error, first))
            except DuesweepError as found:
                end.set_exception(found)
        except SystemExit:
            # It was interrupted.
            end.set_result(None)

    def run(self, opened: OpenedSessions) -> None:
        """Let messages go until none waits, or a service fails. Raises `ConfigError`, and
        unexpected errors.
        """
        workers = self._workers
        try:
            with collect_rarely(), opened(workers[0].of_slice.job) as sessions:
                self._take_turns(workers, sessions)
        except SweepClosedError as error:
            _log.warning("Messages wait no longer for their limit: %s", error)
            self._cut(workers)
        except (StoreError, ConfigError) as error:
            told = make_printable(str(error))
            _log.warning("Messages wait no longer for their limit: %s", told)
            left = self._cut(workers)
            journal_ends([(each.of_slice, each.of_slice.cut(each, error)) for each in left])
            if isinstance(error, ConfigError):
                raise
        except Exception:
            self._fail(workers)
            raise
        except BaseException:
            self._cut(workers)
            raise

    def _fail(self, workers: Sequence[Worker]) -> None:
        """End this thread, and its work, after an unexpected error."""
        left = self._cut(workers)
        journal_ends([(each.of_slice, each.of_slice.fail(each)) for each in left])

    def _cut(self, workers: Sequence[Worker]) -> Sequence[Worker]:
        """End this thread. Returns the work that it does not end."""
        with self._lock:
            if workers is self._workers:
                self._workers, self._is_running, self.has_left = [], False, True
            return workers

    def _take_turns(self, held: list[Worker], sessions: Sessions) -> None:
        first = held[0].of_slice.job
        clock = first.context.world.clock
        if self._reservations is None:
            self._reservations = Reservations(first.context.rate_limits, clock)
        reservations = self._reservations
        self._asks_at = clock.seconds() + _ASK_SECONDS
        while workers := self._continued(held, sessions):
            waiting: Counter[Address] = Counter()
            for worker in workers:
                waiting.update(worker.waiting)
            reservations.reserve(waiting, sessions.store.reserve)
            due = reservations.due(waiting)
            for address, messages, _ in due:
                left = messages
                for worker in workers:
                    if address not in worker.waiting:
                        # It may know of an outage that is over.
                        continue
                    left -= worker.let_go(address, left)
                    if not worker.takes(address):
                        self.has_left = True
                        # Each of them would wait for it as long.
                        for other in workers:
                            if address in other.waiting:
                                other.follow(worker, address)
                        break
            if due:
                self._note_batch(first)
            else:
                for worker in workers:
                    worker.of_slice.check()
                self._rest(first, sessions.store, reservations.seconds_to_next)

    def _continued(self, held: list[Worker], sessions: Sessions) -> Sequence[Worker]:
        """The work in which messages wait, on these sessions. The other work is ended."""
        while True:
            with self._lock:
                workers = [*held]
                if not workers:
                    self._is_running &= held is not self._workers
                    return ()
            for worker in workers:
                if worker.sessions is not sessions:
                    worker.continue_on(sessions)
                if self._leaves:
                    worker.leave()
                if not worker.waiting:
                    worker.of_slice.close(worker, sessions.store)
                    held.remove(worker)
            if going := [worker for worker in workers if worker.waiting]:
                return going

    def _rest(self, job: Job, store: TaskSession, seconds: float) -> None:
        """Let at most this time pass. Leave all messages if the sweep is to stop; raise if it is
        closed.
        """
        clock = job.context.world.clock
        if clock.seconds() + _NAP_SECONDS > self._asks_at:
            try:
                with store.transaction():
                    store.claim(job.run, ())
            except SweepStoppedError:
                self._leaves = True
                return
            self._note_batch(job)
        clock.sleep(min(max(seconds, _LEAST_WAIT_SECONDS), _NAP_SECONDS))

    def _note_batch(self, job: Job) -> None:
        """Note that the sweep may continue. That is no progress while it has other work: this could
        hang.
        """
        self._asks_at = job.context.world.clock.seconds() + _ASK_SECONDS
        if self._is_awaited:
            job.stop.waits.progressed()


def wait_for_limits(worker: Worker, opened: OpenedSessions) -> None:
    """Let the messages go that wait in this work: while the sweep continues, or now."""
    if (limited := worker.of_slice.job.limited) is not None:
        limited.add(worker, opened)
    else:
        Limited().run_now(worker, opened)


def dispatch_slice(job: Job, slice_number: int, claim_keys: ClaimKeys) -> None:
    """Dispatch the messages that the claim keys lead to, one batch after the other, and then the
    ones that wait for their limit; see `Slice.work` and `Limited.run`.
    """
    worker = Slice(job, slice_number, claim_keys).work()
    if worker is not None:
        wait_for_limits(worker, opened_sessions)
