"""One slice: its batches, and its end.

A slice is safe to run twice: rows that are gone or locked are the work of another process. It waits
for no outage: it leaves messages that it cannot move now, and the sweep plans them again
(`sweep.py`). An unexpected error is raised: Spark runs the slice again, up to four times.
"""

import gc
import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

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
from duesweep.queues.base import QueueSession
from duesweep.stores.task import Forwarded, TaskSession
from duesweep.sweep.batch import MOST_UNUSUAL, BatchEnd, Batches, Form
from duesweep.sweep.claim_keys import ClaimKeys
from duesweep.sweep.destinations import Destinations, Reservations
from duesweep.sweep.job import Job
from duesweep.sweep.sessions import OpenedSessions, Turns, opened_sessions

# How often a slice that waits for a limit asks the store whether the sweep is to stop, and looks
# whether it is to wait no longer.
_LONGEST_REST_SECONDS, _NAP_SECONDS = 1.0, 0.05
# No queue has this name.
_UNKNOWN = "\0"
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
        # Of sessions whose other work is done: how it ended, and how many messages wait.
        self._waiting: dict[object, tuple[SliceEnd, int]] = {}
        self._is_interrupted = False
        # Whether messages that wait for their limit are to be left; and whether some were, as too
        # many others waited.
        self.leaves_waiting = self.left_limited = False

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

    def note_waiting(self, token: object, end: SliceEnd, messages: int) -> None:
        """Note the end of a session's work but for these messages, which wait for their limit."""
        with self._lock:
            self._waiting[token] = (end, messages)

    @property
    def end_without_waiting(self) -> SliceEnd | None:
        """The end of the slice, without messages that wait for their limit; None: none does."""
        with self._lock:
            if not self._waiting:
                return None
            messages = sum(count for _, count in self._waiting.values())
            given = SliceEnd(Account(given=len(self.claim_keys.keys) - messages), None)
            ends = {**self._ends, **{token: end for token, (end, _) in self._waiting.items()}}
            return add_ends([given, *ends.values()])

    def progressed(self) -> None:
        """Note that a batch was committed, and once a second that all that is left waits for its
        limit. Raises `SystemExit` after an interruption.
        """
        self.check()
        self.job.stop.waits.progressed()

    def check(self) -> None:
        """Raise `SystemExit` after an interruption."""
        if self._is_interrupted:
            raise SystemExit

    def end(self, token: object, end: SliceEnd) -> SliceEnd | None:
        """Note the end of a session's work. Returns the end of the slice, if it was the last."""
        with self._lock:
            self._ends[token] = end
            if len(self._ends) < self.sessions:
                return None
            given = SliceEnd(Account(given=len(self.claim_keys.keys)), None)
            return add_ends([given, *self._ends.values()])

    def work(
        self, opened: OpenedSessions = opened_sessions, turns: Turns | None = None
    ) -> SliceEnd | None:
        """Dispatch on one session, until no batch is left or a service fails. The last session to
        end journals the end of the slice, and returns it if no error ended its work. `turns`: the
        sweep may have another round while messages wait for their limit.

        Raises `ConfigError` if this machine, or the setup of a service, does not allow it: on Spark
        the task runs again, perhaps on another machine.
        """
        job, sweep_id, token = self.job, self.job.run.sweep_id, object()
        worker: _Worker | None = None
        try:
            with collect_rarely(), opened(job) as (store, queue):
                worker = _Worker(self, store, queue)
                worker.run_batches()
                if turns is None or not worker.waiting:
                    worker.give_turns()
                else:
                    self.note_waiting(token, worker.end_without_waiting(), worker.waiting)
                    with turns.slot(job.context.world.clock) as has_slot:
                        self.left_limited |= not has_slot
                        if has_slot:
                            worker.give_turns()
                if (end := self.end(token, worker.end())) is not None:
                    store.end_slice(job.run, self.number, end)
                return end
        except SweepClosedError as error:
            _log.warning("Slice %d of sweep %s stops: %s", self.number, sweep_id, error)
        except (StoreError, ConfigError) as error:
            told = make_printable(str(error))
            _log.warning("Slice %d of sweep %s is cut: %s", self.number, sweep_id, told)
            self._end_on_a_new_session(token, worker, error)
            if isinstance(error, ConfigError):
                raise
        except Exception:
            # Spark runs a slice of one session again; of several, the others' work counts.
            if self.sessions > 1:
                self._end_on_a_new_session(token, worker)
            raise
        return None

    def _end_on_a_new_session(
        self, token: object, worker: "_Worker | None", error: DuesweepError | None = None
    ) -> None:
        """If the session cannot be opened, the missing row says that the slice was cut."""
        own = SliceEnd(Account(), None) if worker is None else worker.end()
        if error is not None:
            sent = 0 if worker is None else worker.sent_in_vain
            lost = self._lost(error, sent)
            own = replace(own, reason=str(error), breakers=(*own.breakers, *lost))
        if (end := self.end(token, own)) is not None:
            with suppress(DuesweepError), self.job.context.store.open_task() as store:
                store.end_slice(self.job.run, self.number, end)

    def _lost(self, error: DuesweepError, sent_in_vain: int) -> Iterator[BreakerReport]:
        """The report of store and queues, if one of them ended the session."""
        if isinstance(error, StoreError):
            state = BreakerState.OPEN if may_pass(error) else BreakerState.TRIGGERED
            since = self.job.context.world.clock.now().isoformat(timespec="seconds")
            yield BreakerReport(SERVICES, state.value, since, 0.0, sent_in_vain, str(error))


class _Worker:
    """The work of one session on a slice: batches one after the other."""

    def __init__(self, of_slice: Slice, store: TaskSession, queue: QueueSession) -> None:
        self._slice, self._job = of_slice, of_slice.job
        self._store, self._queue = store, queue
        self._to_do = self._cut(of_slice.batches())
        context = self._job.context
        self._clock, self._rng = context.world.clock, context.world.chance()
        self._destinations = Destinations(
            context.breaker,
            Reservations(context.rate_limits, self._clock, self._job.reserved),
            context.batch_size,
            self._clock,
            rng=self._rng,
            outages=[one for one in self._job.outages if one.name != SERVICES],
            tries_in=self._job.tries_in,
            own_queue=context.store.own_queue,
        )
        self._unusual: Counter[str] = Counter()
        self._batches = Batches(
            self._job,
            of_slice.number,
            store,
            queue,
            destinations=self._destinations,
            unusual=self._unusual,
        )
        # By their destinations as the plan has them.
        self._addresses: dict[str | None, Address] = {}
        # The rest of the current batch, and how many messages of it come after that.
        self._in_hand: Sequence[Forwarded] = ()
        self._after = 0
        self._account = Account()
        self._is_stopped = self._gives_turns = False

    def run_batches(self) -> None:
        """Run the batches of the slice that no other session has taken."""
        with self._stopping():
            for batch in self._to_do:
                self._run_batch(batch)

    def give_turns(self) -> None:
        """Let the messages that wait for a limit go, as far as the slice may."""
        with self._stopping():
            self._gives_turns = True
            while self.waiting and not self._slice.leaves_waiting:
                for claim_keys in self._destinations.turns(self._store.reserve, self._room):
                    self._run_form(self._batches.careful, [Forwarded(None, claim_keys)])
                if not (self.waiting and self._room(1)):
                    return
                self._wait_for_turn(self._destinations.seconds_to_turn)

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """If the sweep is stopped in the block, count the messages that it leaves."""
        try:
            yield
        except SweepStoppedError:
            self._is_stopped = True
            in_hand = sum(len(group.keys) for group in self._in_hand) + self._after
            self._account += Account(left=in_hand + sum(map(len, self._to_do)))

    @property
    def waiting(self) -> int:
        """How many messages wait for a limit; none that a stop leaves."""
        return 0 if self._is_stopped else self._destinations.waiting

    def end_without_waiting(self) -> SliceEnd:
        """The end of this work, without them."""
        end = self.end()
        account = replace(end.account, left=end.account.left - self.waiting)
        return replace(end, account=account)

    @property
    def sent_in_vain(self) -> int:
        """How many messages of a batch that did not commit were sent to a queue that cannot take
        them back.
        """
        if self._job.context.queue.shares_transaction or not self._batches.is_sending:
            return 0
        return sum(len(group.keys) for group in self._in_hand)

    def end(self) -> SliceEnd:
        """The end of this work."""
        account = self._account + Account(left=self._destinations.left)
        reasons = (self._slice.claim_keys.fault, self._destinations.blocked_reason)
        reason = "; ".join(filter(None, reasons))
        breakers = tuple(self._destinations.reports(self._clock.now()))
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
        return SliceEnd(account, reason or None, breakers, careful)

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

    def _run_batch(self, batch: Sequence[int]) -> None:
        """Run a batch in the first form in which it is not unusual."""
        collect_new()
        keys = self._slice.claim_keys
        if not self._room(len(batch)):
            self._in_hand = keys.groups(batch)
            raise SweepStoppedError("The slice has claimed its share")
        if keys.forwards and not self._destinations.all_closed:
            batch = self._try_first(batch)
        if groups := keys.groups(batch):
            forms = self._batches.forms(is_usual=self._is_usual(groups))
            next(form for form in forms if self._run_form(form, groups))

    def _try_first(self, batch: Sequence[int]) -> Sequence[int]:
        """Try each unavailable destination with one message, if it is time for that. Returns the
        places of all other messages but blocked ones, which are left without a claim.
        """
        keys, destinations = self._slice.claim_keys, self._destinations
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
        takes = self._destinations.takes
        return self._destinations.all_closed or all(
            group.forward is not None and takes(self._address(group.forward)) for group in groups
        )

    def _address(self, forward: str | None) -> Address:
        """The address of a destination as the plan has it."""
        if forward not in self._addresses:
            self._addresses[forward] = _UNKNOWN
            if forward is not None:
                with suppress(UnusualBatchError):
                    self._addresses[forward] = self._store.address_of(forward)
        return self._addresses[forward]

    def _wait_for_turn(self, seconds: float) -> None:
        """Let this time pass; raise if the sweep is to stop by then, or is closed."""
        now = asked_at = self._clock.seconds()
        end = now + max(seconds, _LEAST_WAIT_SECONDS)
        while end > now and not self._slice.leaves_waiting:
            # Before the rest, not after it: messages that may go at its end go at once.
            if now + _NAP_SECONDS > asked_at:
                asked_at = now + _LONGEST_REST_SECONDS
                with self._store.transaction():
                    self._store.claim(self._job.run, ())
                self._progressed()
            if (left := end - self._clock.seconds()) > 0:
                self._clock.sleep(min(max(left, _LEAST_WAIT_SECONDS), _NAP_SECONDS))
            now = self._clock.seconds()

    def _progressed(self) -> None:
        """Note progress; not of messages that wait while the sweep has other rounds: these could
        hang.
        """
        if self._gives_turns and self._job.goes_on:
            self._slice.check()
        else:
            self._slice.progressed()

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
            self._progressed()
        self._in_hand = [Forwarded(None, end.again)] if end.again else ()
        self._account += end.account


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
