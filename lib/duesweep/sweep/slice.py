"""One slice: its claim keys, its batches, the sessions that work on it, and its end.

A slice is safe to run twice: rows that are gone or locked are the work of another process. If a
service fails, the slice continues with new sessions; if it fails for too long, the slice ends, and
the reason is journalled. An unexpected error is raised: Spark runs the slice again, up to four
times.
"""

import gc
import logging
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from sys import intern
from typing import Any

from duesweep.core.account import Account, BreakerState, CarefulBatches, SliceEnd, add_ends
from duesweep.core.errors import (
    ConfigError,
    DuesweepError,
    StoreError,
    SweepClosedError,
    SweepStoppedError,
    make_printable,
    may_pass,
)
from duesweep.drivers.statements import try_again
from duesweep.queues.base import QueueSession
from duesweep.stores.task import BETWEEN_FORWARDS, Forwarded, TaskSession
from duesweep.sweep.batch import MOST_UNUSUAL, BatchEnd, Batches, Form
from duesweep.sweep.destinations import CircuitBreaker, Destinations, Turn
from duesweep.sweep.job import Job

# With more destinations, this many messages are sorted together.
_MANY_FORWARDS, _SORTED_TOGETHER = 16, 100_000


@dataclass(frozen=True, slots=True)
class ClaimKeys:
    """The claim keys of a slice, and the sizes of their messages in bytes, in the same order.
    `total` is how many keys the slice has. None: the read returned nothing, not even the row that
    every slice has. `forwards` are their destinations, as `Forwarded` has them; empty: the store
    does not say.
    """

    keys: Sequence[str]
    sizes: Sequence[int]
    total: int | None
    forwards: Sequence[str | None] = ()

    def places(self, *, in_order: bool) -> Sequence[int]:
        """The places of the keys in the order in which they are claimed: by their Due. If there are
        many destinations, and it need not be `in_order`, the keys of some 100,000 messages that go
        to one destination come together, so that a batch has few statements.
        """
        count = len(self.keys)
        if in_order or len(set(self.forwards)) <= _MANY_FORWARDS:
            return range(count)
        places: list[int] = []
        for start in range(0, count, _SORTED_TOGETHER):
            end = min(count, start + _SORTED_TOGETHER)
            places += sorted(range(start, end), key=lambda place: self.forwards[place] or "")
        return places

    def groups(self, batch: Iterable[int]) -> list[Forwarded]:
        """The keys at these places, by destination."""
        if not self.forwards:
            return [Forwarded(None, [self.keys[place] for place in batch])]
        found: dict[str | None, list[str]] = {}
        for place in batch:
            found.setdefault(self.forwards[place], []).append(self.keys[place])
        return [Forwarded(forward, keys) for forward, keys in found.items()]

    @property
    def fault(self) -> str | None:
        """Why keys of the slice are missing; None where it is complete.

        If the read breaks off in the JVM, the task sees an ordinary end of the data.
        """
        if self.total == len(self.keys):
            return None
        planned = "its" if self.total is None else f"{self.total}"
        return (
            f"The task read {len(self.keys)} of {planned} keys: the session that read them "
            "from the store ended early (DUESWEEP_SPARK_LOG=warn shows why); the next sweep plans "
            "the rest again"
        )


def read_claim_keys(rows: Iterable[Any]) -> ClaimKeys:
    """All claim keys of a slice, from the rows of `Slices.claim_keys_query`, which come in any
    order. They are read to the end before anything is claimed: an open JDBC cursor holds a
    snapshot, and the server cannot vacuum the rows that the sweep removes.
    """
    keys: list[str] = []
    sizes = array("q")
    forwards: list[str | None] = []
    total: int | None = None
    for row in sorted(rows, key=lambda row: getattr(row, "chunk", None) or 0):
        total = row.total or 0
        if row.claim_keys:
            keys += row.claim_keys.split(",")
            sizes.extend(map(int, row.sizes.split(",")))
            forwards += _forwards(getattr(row, "forwards", None), len(keys) - len(forwards))
    is_known = any(forward is not None for forward in forwards)
    return ClaimKeys(keys, sizes, total, forwards if is_known else ())


def _forwards(joined: str | None, count: int) -> list[str | None]:
    """The `count` destinations; None each if one of them has the separator."""
    found = [] if joined is None else joined.split(BETWEEN_FORWARDS)
    return [intern(each) for each in found] if len(found) == count else [None] * count


# How often a slice that waits looks whether the sweep is to stop.
_LONGEST_REST_SECONDS = 1.0
# A rest that rounding leaves would not move a clock.
_LEAST_WAIT_SECONDS = 0.001

# The standard library's logger: it writes to the executor's stderr without any set-up in a worker.
_log = logging.getLogger(__name__)


def dispatch_slice(job: Job, slice_number: int, claim_keys: ClaimKeys) -> None:
    """Dispatch the messages that the claim keys lead to, on one session; see `Slice.work`."""
    Slice(job, slice_number, claim_keys).work()


class Slice:
    """One slice. As many threads as it has `sessions` call `work`, each with a session of its own:
    they take their batches from one list, so that all of them end at about the same time.
    """

    def __init__(
        self, job: Job, slice_number: int, claim_keys: ClaimKeys, sessions: int = 1
    ) -> None:
        self.job, self.claim_keys = job, claim_keys
        # As the journal counts it.
        self.number = job.first_slice + slice_number
        count = len(claim_keys.keys)
        share = count if job.shares is None else job.shares[slice_number]
        # How many messages it may claim; None: all of its own.
        self.most = share if share < count else None
        # Several would not know how much of its share the others use up.
        self.sessions = sessions if self.most is None else 1
        # Only a batch that is moved has a statement for each destination.
        in_order = job.shares is not None or not job.context.may_move
        places = claim_keys.places(in_order=in_order)
        sizes = [claim_keys.sizes[place] for place in places]
        # Messages of one Due may have one claim key: a batch with only some of them is unusual.
        together = [claim_keys.keys[place] for place in places]
        self._batches = job.context.batch_size.batches(places, sizes, together)
        self._lock = threading.Lock()
        # By a token of the worker: workers know their slice, and a circle with a slice's keys in it
        # stays in memory for long.
        self._ends: dict[object, SliceEnd] = {}

    def batches(self) -> Iterator[Sequence[int]]:
        """The batches that no session has taken yet, each when it is asked for."""
        while True:
            with self._lock:
                batch = next(self._batches, None)
            if batch is None:
                return
            yield batch

    def end(self, token: object, end: SliceEnd) -> SliceEnd | None:
        """Note the end of a session's work. Returns the end of the slice, if it was the last."""
        with self._lock:
            self._ends[token] = end
            if len(self._ends) < self.sessions:
                return None
            given = SliceEnd(Account(given=len(self.claim_keys.keys)), None)
            return add_ends([given, *self._ends.values()])

    def work(self) -> None:
        """Dispatch on one session, or on new ones if a service fails, until no batch is left. The
        last session to end journals the end of the slice.

        Raises `ConfigError` if this machine, or the setup of a service, does not allow it: on Spark
        the task runs again, perhaps on another machine.
        """
        job, sweep_id = self.job, self.job.run.sweep_id
        worker = _Worker(self)
        try:
            with collect_rarely():
                run_on_sessions(job, worker.breaker, worker.run)
        except SweepClosedError as error:
            _log.warning("Slice %d of sweep %s stops: %s", self.number, sweep_id, error)
        except (StoreError, ConfigError) as error:
            told = make_printable(str(error))
            _log.warning("Slice %d of sweep %s is cut: %s", self.number, sweep_id, told)
            self._end_on_a_new_session(worker, str(error))
            if isinstance(error, ConfigError):
                raise
        except Exception:
            # Spark runs a slice of one session again; of several, the others' work counts.
            if self.sessions > 1:
                self._end_on_a_new_session(worker, None)
            raise

    def _end_on_a_new_session(self, worker: "_Worker", reason: str | None) -> None:
        """If the session cannot be opened, the missing row says that the slice was cut."""
        if (end := self.end(worker.token, worker.end(reason))) is not None:
            with suppress(DuesweepError), self.job.context.store.open_task() as store:
                store.end_slice(self.job.run, self.number, end)


class _Worker:
    """The work of one session on a slice: batches one after the other, on new sessions if a service
    has failed.
    """

    _store: TaskSession
    _queue: QueueSession
    _batches: Batches

    def __init__(self, of_slice: Slice) -> None:
        self._slice, self._job = of_slice, of_slice.job
        self.token = object()
        self._to_do = self._cut(of_slice.batches())
        # The rest of the current batch. If the sessions fail, it is claimed again.
        self._in_hand: Sequence[Forwarded] = ()
        self.breaker = SessionBreaker(self._job)
        context = self._job.context
        self._clock, self._rng = context.world.clock, context.world.chance()
        self._destinations = Destinations(
            context.breaker, context.rate_limits, context.batch_size, self._clock
        )
        self._account = Account()
        self._unusual: Counter[str] = Counter()

    def run(self, store: TaskSession, queue: QueueSession) -> None:
        """Run the rest of the slice, batch after batch, and journal its end if no other session
        works on it.
        """
        job = self._job
        self._store, self._queue = store, queue
        self._batches = Batches(
            job,
            self._slice.number,
            store,
            queue,
            destinations=self._destinations,
            begin_sending=self.breaker.begin_sending,
            unusual=self._unusual,
        )
        try:
            self._run_batches()
        except SweepStoppedError:
            self._leave_all()
        reasons = (self._slice.claim_keys.fault, self._destinations.blocked_reason)
        end = self._slice.end(self.token, self.end("; ".join(filter(None, reasons))))
        if end is not None:
            store.end_slice(job.run, self._slice.number, end)

    def end(self, reason: str | None) -> SliceEnd:
        """The end of this work. What still waits for a destination is left."""
        account = self._account + Account(left=self._destinations.left)
        own_queue, now = self._job.context.store.own_queue, self._clock.now()
        reports = self._destinations.reports(own_queue, self.breaker.circuit, now)
        careful = tuple(CarefulBatches(*each) for each in self._unusual.most_common())
        if careful:
            # With few of them a slice takes hardly longer.
            level = logging.WARNING if self._unusual.total() > MOST_UNUSUAL else logging.INFO
            _log.log(
                level,
                "Slice %d of sweep %s: the careful form, which takes longer, in %d batches: %s",
                self._slice.number,
                self._job.run.sweep_id,
                self._unusual.total(),
                make_printable("; ".join(self._unusual)),
            )
        return SliceEnd(account, reason or None, tuple(reports), careful)

    def _run_batches(self) -> None:
        self._run_form(self._batches.careful, self._in_hand)
        for batch in self._to_do:
            self._run_batch(batch)
            if self._destinations.left:
                self._give_turns(self._destinations.tries(self._room))
        while self._destinations.left:
            self._give_turns(self._destinations.turns(self._store.reserve, self._room))
            if not (self._destinations.left and self._room(1)):
                return
            if (seconds := self._destinations.seconds_to_next) is None:
                return
            self._wait_for_turn(seconds)

    def _room(self, wanted: int) -> int:
        """How many of `wanted` messages the slice may still claim. Messages that are held back,
        locked or gone use up none of its share: otherwise the same ones could use up all of it in
        each sweep, and no other message would ever go.
        """
        if self._slice.most is None:
            return wanted
        return max(0, min(wanted, self._slice.most - self._account.claimed))

    def _cut(self, batches: Iterable[Sequence[int]]) -> Iterator[Sequence[int]]:
        """The batches, in parts with no more messages than may still be claimed when each is asked
        for; whole, if none may.
        """
        for batch in batches:
            rest = batch
            while rest:
                end = self._room(len(rest)) or len(rest)
                yield rest[:end]
                rest = rest[end:]

    def _leave_all(self) -> None:
        """Leave the rest to the next sweep."""
        left = sum(len(group.keys) for group in self._in_hand) + sum(map(len, self._to_do))
        self._in_hand = ()
        self._account += Account(left=left)

    def _run_batch(self, batch: Sequence[int]) -> None:
        """Run a batch in the first form in which it is not unusual."""
        collect_new()
        self._in_hand = groups = self._slice.claim_keys.groups(batch)
        if not self._room(len(batch)):
            raise SweepStoppedError("The slice has claimed its share")
        for form in self._batches.forms():
            if self._run_form(form, groups):
                return

    def _give_turns(self, turns: Iterator[Turn]) -> None:
        """Run batches that waited for their destination, as far as the slice may."""
        for turn in turns:
            with self._destinations.giving(turn):
                self._run_form(self._batches.careful, [Forwarded(None, turn.claim_keys)])

    def _wait_for_turn(self, seconds: float) -> None:
        """Let this time pass; raise if the sweep is to stop by then, or is closed."""
        end = self._clock.seconds() + max(seconds, _LEAST_WAIT_SECONDS)
        while end > self._clock.seconds():
            # Before the rest, not after it: messages that may go at its end go at once.
            with self._store.transaction():
                self._store.claim(self._job.run, ())
            self._job.progressed()
            if (left := end - self._clock.seconds()) > 0:
                self._clock.sleep(min(max(left, _LEAST_WAIT_SECONDS), _LONGEST_REST_SECONDS))

    def _run_form(self, form: Form, batch: Sequence[Forwarded]) -> bool:
        """Run a batch in one of its forms. Messages that it released get a batch of their own.
        Returns whether the form suits it.
        """
        self._in_hand = batch
        while self._in_hand:
            end = try_again(lambda: form(self._in_hand), self._undo_lost, self._clock, self._rng)
            if end is None:
                return False
            self._succeed(end)
            if self._in_hand:
                collect_new()
        return True

    def _undo_lost(self, reason: str) -> None:
        """Be ready to claim the batch again whose transaction was lost."""
        self._queue.rollback()
        # RabbitMQ gets these messages again, and only this line says so.
        _log.warning(
            "Slice %d of sweep %s claims a batch again: %s",
            self._slice.number,
            self._job.run.sweep_id,
            make_printable(reason),
        )
        collect_new()

    def _succeed(self, end: BatchEnd) -> None:
        """Count a batch that is committed: one that is rolled back is claimed and counted again."""
        self._destinations.add(end.account.claimed, end.blocked, end.others)
        if end.account.claimed:
            self._job.progressed()
        self._in_hand = [Forwarded(None, end.again)] if end.again else ()
        self._account += end.account
        self.breaker.succeed(end.account.claimed)


_STOP_POLL_SECONDS = 0.2


class SessionBreaker:
    """The circuit breaker of a slice's sessions with store and queues.

    It also counts useless deliveries, if a queue cannot take them back: it gets a batch again,
    and not again until a batch succeeds.
    """

    def __init__(self, job: Job) -> None:
        self.circuit = CircuitBreaker(job.context.breaker, job.context.world.clock)
        self._doubles = not job.context.queue.shares_transaction
        self._is_sending = False
        self._sent_in_vain = 0

    def begin_sending(self) -> None:
        self._is_sending = self._doubles

    def succeed(self, claimed: int) -> None:
        """Note that a batch is committed, with the outcomes of its messages."""
        self._is_sending = False
        if claimed:
            self._sent_in_vain = 0
        self.circuit.succeed()

    def fail(self, error: StoreError) -> None:
        self._sent_in_vain += self._is_sending
        self._is_sending = False
        may_go_on = may_pass(error) and self._sent_in_vain <= 1
        self.circuit.fail(str(error), is_lasting=not may_go_on)


def run_on_sessions(
    job: Job, breaker: SessionBreaker, run: Callable[[TaskSession, QueueSession], None]
) -> None:
    """Call `run` with sessions with store and queues, and again with new ones if a service fails.
    It has to continue where it was cut.

    Raises the service's error when the breaker is triggered.
    """
    while True:
        try:
            with job.context.store.open_task() as store, job.context.queue.open(store) as queue:
                # A batch for another server may wait for that one.
                if job.context.queue.shares_transaction:
                    store.expect_no_idle_client()
                run(store, queue)
            return
        except StoreError as error:
            breaker.fail(error)
            if breaker.circuit.state is BreakerState.TRIGGERED or job.is_stopped():
                raise
            _log.warning(
                "Sweep %s opens new sessions: %s", job.run.sweep_id, make_printable(str(error))
            )
        _wait_for_services(job, breaker.circuit.seconds_to_try)


def _wait_for_services(job: Job, seconds: float) -> None:
    """Let so much time pass, or less if the sweep is to stop: the next try is then the last."""
    end = job.context.world.clock.seconds() + seconds
    while (left := end - job.context.world.clock.seconds()) > 0 and not job.is_stopped():
        job.context.world.clock.sleep(min(left, _STOP_POLL_SECONDS))


# A batch makes thousands of tuples and dictionaries. At Python's own 700, looking for circles among
# them, again and again, took an eighth of a task's CPU.
_NEW_OBJECTS = 100_000


class _Rarely:
    """The threads that collect rarely now, and how often the process did before."""

    lock = threading.Lock()
    threads = 0
    before = gc.get_threshold()


@contextmanager
def collect_rarely() -> Iterator[None]:
    """In the block, the collector runs once for this many new objects. Several threads may be in
    it: the last one to leave lets it run as before.
    """
    with _Rarely.lock:
        _Rarely.threads += 1
        if _Rarely.threads == 1:
            _Rarely.before = often, *others = gc.get_threshold()
            gc.set_threshold(max(_NEW_OBJECTS, often) if often else 0, *others)
    try:
        yield
    finally:
        with _Rarely.lock:
            _Rarely.threads -= 1
            if not _Rarely.threads:
                gc.set_threshold(*_Rarely.before)


def collect_new() -> None:
    """Collect among the objects that are new since the last batches. An error and the frames of its
    traceback are a circle that holds its batch's bodies.
    """
    gc.collect(1)
