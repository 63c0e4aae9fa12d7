"""One slice: its batches, and its end.

A slice is safe to run twice: rows that are gone or locked are the work of another process. It waits
for no outage: it leaves messages that one holds up, and the sweep plans them again (`sweep.py`).
Its other messages that may not go yet wait for their limit in limits.py. An unexpected error is
raised: Spark runs the slice again, up to four times.
"""

import gc
import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from duesweep.core import logs
from duesweep.core.account import (
    SERVICES,
    Account,
    BreakerReport,
    BreakerState,
    CarefulBatches,
    SliceEnd,
    add_ends,
)
from duesweep.core.errors import (
    ConfigError,
    DuesweepError,
    StoreError,
    SweepClosedError,
    SweepStoppedError,
    UnusualBatchError,
    make_printable,
    may_pass,
)
from duesweep.core.message import Address
from duesweep.drivers.statements import try_again
from duesweep.stores.task import Forwarded, TaskSession
from duesweep.sweep.batch import MOST_UNUSUAL, BatchEnd, Batches, Form
from duesweep.sweep.claim_keys import ClaimKeys
from duesweep.sweep.destinations import Destinations
from duesweep.sweep.job import CutShort, Job
from duesweep.sweep.sessions import OpenedSessions, Sessions, opened_sessions

# No queue has this name.
_UNKNOWN = "\0"

# The standard library's logger: it writes to the executor's stderr without any set-up in a worker.
_log = logging.getLogger(__name__)


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
        # stays in memory for long. Work that is not among the ended may continue.
        self._ends: dict[object, SliceEnd] = {}
        self._ended: set[object] = set()
        self._is_interrupted = False

    def batches(self) -> Iterator[Sequence[int]]:
        """The batches that no session has taken yet, each when it is asked for."""
        while True:
            with self._lock:
                batch = next(self._batches, None)
            if batch is None:
                return
            yield batch

    def interrupt(self) -> None:
        """End all threads that work on it, each after its current batch."""
        self._is_interrupted = True

    def check(self) -> None:
        """Raise `SystemExit` after an interruption."""
        if self._is_interrupted:
            raise SystemExit

    @property
    def end(self) -> SliceEnd | None:
        """The end of the slice, without messages that wait for their limit; None: a session has not
        come to its end, or the sweep was closed before.
        """
        with self._lock:
            if len(self._ends) < self.sessions:
                return None
            given = SliceEnd(Account(given=len(self.claim_keys.keys)), None)
            return add_ends([given, *self._ends.values()])

    def work(self, opened: OpenedSessions = opened_sessions) -> "Worker | None":
        """Dispatch on one session, until no batch is left or a service fails. Returns the work if
        messages of it wait for their limit; the last one to end journals the end of the slice.

        Raises `ConfigError` if this machine, or the setup of a service, does not allow it: on Spark
        the task runs again, perhaps on another machine.
        """
        sweep_id, worker = self.job.run.sweep_id, None
        try:
            with collect_rarely(), opened(self.job) as sessions:
                worker = Worker(self, sessions)
                worker.run_batches()
                if worker.waiting:
                    with self._lock:
                        self._ends[worker.token] = worker.end()
                    return worker
                self.close(worker, sessions.store)
        except SweepClosedError as error:
            _log.warning("Slice %d of sweep %s stops: %s", self.number, sweep_id, error)
        except (StoreError, ConfigError) as error:
            told = make_printable(str(error))
            _log.warning("Slice %d of sweep %s is cut: %s", self.number, sweep_id, told)
            journal_ends([(self, self.cut(worker, error))])
            if isinstance(error, ConfigError):
                raise
        except Exception:
            journal_ends([(self, self.fail(worker))])
            raise
        return None

    def close(self, worker: "Worker", store: TaskSession) -> None:
        """End this work, and journal the end of the slice if it was the last."""
        if (end := self._note_end(worker.token, worker.last_end())) is not None:
            store.end_slice(self.job.run, self.number, end)

    def cut(self, worker: "Worker | None", error: DuesweepError) -> SliceEnd | None:
        """End the work of a session that this error has ended, or that could not be opened. Returns
        the end of the slice, if it was the last.
        """
        sent = 0 if worker is None else worker.sent_in_vain
        end = self._left_by(worker)
        breakers = (*end.breakers, *self._lost(error, sent))
        return self._note_end(_token(worker), replace(end, reason=str(error), breakers=breakers))

    def fail(self, worker: "Worker | None") -> SliceEnd | None:
        """The same for an unexpected error. Spark runs a slice of one session again; of several,
        the others' work counts.
        """
        if self.sessions == 1:
            return None
        return self._note_end(_token(worker), self._left_by(worker))

    def _left_by(self, worker: "Worker | None") -> SliceEnd:
        if worker is None:
            return SliceEnd(Account(), None)
        worker.leave()
        return worker.last_end()

    def _note_end(self, token: object, end: SliceEnd) -> SliceEnd | None:
        """Note the end of a session's work. Returns the end of the slice, if it was the last."""
        with self._lock:
            self._ends[token] = end
            self._ended.add(token)
            is_last = len(self._ended) == self.sessions
        return self.end if is_last else None

    def _lost(self, error: DuesweepError, sent_in_vain: int) -> Iterator[BreakerReport]:
        """The report of store and queues, if one of them ended the session."""
        if isinstance(error, StoreError):
            state = BreakerState.OPEN if may_pass(error) else BreakerState.TRIGGERED
            since = self.job.context.world.clock.now().isoformat(timespec="seconds")
            yield BreakerReport(SERVICES, state.value, since, 0.0, sent_in_vain, str(error))


def journal_ends(ends: Sequence[tuple[Slice, SliceEnd | None]]) -> None:
    """Journal the ends of slices on a new session; nothing for None. If the session cannot be
    opened, the missing rows say that the slices were cut.
    """
    known = [(of_slice, end) for of_slice, end in ends if end is not None]
    if known:
        first, _ = known[0]
        with suppress(DuesweepError), first.job.context.store.open_task() as store:
            for of_slice, end in known:
                store.end_slice(of_slice.job.run, of_slice.number, end)


def _token(worker: "Worker | None") -> object:
    return object() if worker is None else worker.token


class Worker:
    """The work of one session on a slice: batches one after the other."""

    def __init__(self, of_slice: Slice, sessions: Sessions) -> None:
        self.of_slice, self._job = of_slice, of_slice.job
        self.token = object()
        self._to_do = self._cut(of_slice.batches())
        context = self._job.context
        self._clock, self._rng = context.world.clock, context.world.chance()
        self.destinations = Destinations(
            context.breaker,
            context.rate_limits,
            context.batch_size,
            self._clock,
            rng=self._rng,
            outages=[one for one in self._job.outages if one.name != SERVICES],
            tries_in=self._job.tries_in,
            own_queue=context.store.own_queue,
        )
        self._unusual: Counter[str] = Counter()
        # By their destinations as the plan has them.
        self._addresses: dict[str | None, Address] = {}
        # The rest of the current batch, and how many messages of it come after that.
        self._in_hand: Sequence[Forwarded] = ()
        self._after = 0
        self._account = Account()
        # Whether messages that wait for their limit are left.
        self._leaves = False
        self.continue_on(sessions)

    def continue_on(self, sessions: Sessions) -> None:
        """Use these sessions for the next batches."""
        self.sessions = sessions
        self._batches = Batches(
            self._job,
            self.of_slice.number,
            *sessions,
            destinations=self.destinations,
            unusual=self._unusual,
        )

    def run_batches(self) -> None:
        """Run the batches of the slice that no other session has taken."""
        with self._stopping():
            for batch in self._to_do:
                self._run_batch(batch)

    def let_go(self, address: Address, most: int) -> int:
        """Let up to this many messages go to a destination for whose limit they wait. Returns how
        many were claimed.
        """
        before, destinations = self._account.claimed, self.destinations
        destinations.has_turn = [address]
        with self._stopping():
            # If others have taken some of these messages: the next ones.
            while address in self.waiting and (left := before + most - self._account.claimed) > 0:
                keys = destinations.take(address, self._room(left))
                self._run_form(self._batches.careful, [Forwarded(None, keys)])
        destinations.has_turn = ()
        return self._account.claimed - before

    def takes(self, address: Address) -> bool:
        """Whether a destination is available, as far as this work knows."""
        return self.destinations.takes(address)

    def follow(self, other: "Worker", address: Address) -> None:
        """Share the other work's breaker of a destination."""
        self.destinations.follow(other.destinations, address)

    def leave(self) -> None:
        """Leave the messages that wait for their limit."""
        self._leaves = True

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """If the sweep is stopped in the block, count the messages that it leaves."""
        try:
            yield
        except SweepStoppedError:
            self.leave()
            in_hand = sum(len(group.keys) for group in self._in_hand) + self._after
            self._account += Account(left=in_hand + sum(map(len, self._to_do)))

    @property
    def waiting(self) -> Mapping[Address, int]:
        """How many messages wait for a limit, by their destination: none if they are left, or the
        slice may claim no more.
        """
        return {} if self._leaves or not self._room(1) else self.destinations.waiting

    @property
    def sent_in_vain(self) -> int:
        """How many messages of a batch that did not commit were sent to a queue that cannot take
        them back.
        """
        if self._job.context.queue.shares_transaction or not self._batches.is_sending:
            return 0
        return sum(len(group.keys) for group in self._in_hand)

    def end(self) -> SliceEnd:
        """The end of this work, without messages that wait for their limit."""
        left = self.destinations.left - sum(self.waiting.values())
        account = self._account + Account(left=left)
        reasons = (self.of_slice.claim_keys.fault, self.destinations.blocked_reason)
        reason = "; ".join(filter(None, reasons))
        breakers = tuple(self.destinations.reports(self._clock.now()))
        careful = tuple(CarefulBatches(*each) for each in self._unusual.most_common())
        return SliceEnd(account, reason or None, breakers, careful)

    def last_end(self) -> SliceEnd:
        """The end of this work, with a line in the log if many batches were unusual."""
        if self._unusual:
            # With few of them a slice takes hardly longer.
            level = logging.WARNING if self._unusual.total() > MOST_UNUSUAL else logging.INFO
            _log.log(
                level,
                "Slice %d of sweep %s: the careful form, which takes longer, in %d batches: %s",
                self.of_slice.number,
                self._job.run.sweep_id,
                self._unusual.total(),
                make_printable("; ".join(self._unusual)),
            )
        return self.end()

    def _room(self, wanted: int) -> int:
        """How many of `wanted` messages the slice may still claim. Messages that are held back,
        locked or gone use up none of its share: otherwise the same ones could use up all of it in
        each sweep, and no other message would ever go.
        """
        if self.of_slice.most is None:
            return wanted
        return max(0, min(wanted, self.of_slice.most - self._account.claimed))

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

    def _run_batch(self, batch: Sequence[int]) -> None:
        """Run a batch in the first form in which it is not unusual."""
        collect_new()
        keys = self.of_slice.claim_keys
        if not self._room(len(batch)):
            self._in_hand = keys.groups(batch)
            raise SweepStoppedError("The slice has claimed its share")
        if keys.forwards and not self.destinations.all_closed:
            batch = self._try_first(batch)
        if groups := keys.groups(batch):
            forms = self._batches.forms(is_usual=self._is_usual(groups))
            next(form for form in forms if self._run_form(form, groups))

    def _try_first(self, batch: Sequence[int]) -> Sequence[int]:
        """Try each unavailable destination with one message, if it is time for that. Returns the
        places of all other messages but blocked ones, which are left without a claim.
        """
        keys, destinations = self.of_slice.claim_keys, self.destinations
        addresses = {place: self._address(keys.forwards[place]) for place in batch}
        tries: dict[Address, int] = {}
        for place, address in addresses.items():
            if not destinations.takes(address) and destinations.is_due(address):
                tries.setdefault(address, place)
        self._after = len(batch) - len(tries)
        self._run_form(self._batches.careful, keys.groups(tries.values()))
        self._after = 0
        tried = {*tries.values()}
        rest = (place for place in batch if place not in tried)
        return [place for place in rest if not destinations.leave(addresses[place])]

    def _is_usual(self, groups: Sequence[Forwarded]) -> bool:
        """Whether all destinations are available, as far as is known."""
        takes = self.destinations.takes
        return self.destinations.all_closed or all(
            group.forward is not None and takes(self._address(group.forward)) for group in groups
        )

    def _address(self, forward: str | None) -> Address:
        """The address of a destination as the plan has it."""
        if forward not in self._addresses:
            self._addresses[forward] = _UNKNOWN
            if forward is not None:
                with suppress(UnusualBatchError):
                    self._addresses[forward] = self.sessions.store.address_of(forward)
        return self._addresses[forward]

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
        self.sessions.queue.rollback()
        # RabbitMQ gets these messages again, and only this line says so.
        _log.warning(
            "Slice %d of sweep %s claims a batch again: %s",
            self.of_slice.number,
            self._job.run.sweep_id,
            make_printable(reason),
        )
        collect_new()

    def _succeed(self, end: BatchEnd) -> None:
        """Count a batch that is committed: one that is rolled back is claimed and counted again."""
        self.destinations.add(end.blocked, end.others)
        if end.account.claimed:
            self.of_slice.check()
            if not self.destinations.has_turn:
                self._job.stop.waits.progressed()
        self._in_hand = [Forwarded(None, end.again)] if end.again else ()
        self._account += end.account


def cut_short_by(error: Exception, of_slice: Slice) -> CutShort:
    """Why this error cut work on a slice short. Raises it if it is expected, and not of
    configuration.
    """
    if isinstance(error, ConfigError):
        return CutShort(str(error), is_lasting=True)
    if isinstance(error, DuesweepError):
        raise error
    sweep_id = str(of_slice.job.run.sweep_id)
    logs.error("slice_failed", exc_info=error, sweep_id=sweep_id, slice=of_slice.number)
    why = f"An unexpected error ended a slice: {type(error).__name__}: {error}"
    return CutShort(f"{why}; please report this, with the log")


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
