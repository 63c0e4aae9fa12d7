"""The two ways to replay a batch: deliver it to queues, or put it back into the store."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from duesweep.core.change import Change, ChangeKind
from duesweep.core.errors import MessageError
from duesweep.core.exhausted import ErrorId, Replayable
from duesweep.core.message import BatchResult, Message
from duesweep.core.policy import Paused, RateLimit, RateLimits
from duesweep.core.world import StoreClock
from duesweep.drivers.statements import try_again
from duesweep.put_back import put_back
from duesweep.queues.base import QueueSession
from duesweep.steer import Tally
from duesweep.stores.base import Claim, NewMessage, OperatorTask, SweepRun
from duesweep.sweep.delivery import SliceDelivery, group_by_destination
from duesweep.sweep.job import SweepContext
from duesweep.sweep.waiting import DestinationBreakers, SliceLimits

# So often a message that gets no answer is sent, and so often in a row none may be reached.
_MOST_TRIES = 3
_NO_ANSWER = "The queue did not say whether the message arrived: it may have"
_NOT_SENT = "It was not sent: the messages before it took too long"
_PAUSED = "Its destination is paused: see `duesweep paused`"
_MOST_FAILURES = 1_000


class Item(NamedTuple):
    """An error, and its message as it is replayed."""

    error: ErrorId
    found: Replayable

    @property
    def key(self) -> str:
        """The message's key, by which answers come."""
        return self.found.message.key


class Failure(NamedTuple):
    """An error that was not replayed, and why."""

    error: ErrorId
    reason: str


@dataclass(slots=True)
class Account:
    """What came of the errors that were chosen. `done_before` were replayed or discarded by the
    time that this command ran; `failures` are the first of those that could not be replayed.
    """

    done_before: int = 0
    failed: int = 0
    failures: list[Failure] = field(default_factory=list)

    def fail(self, error: ErrorId, reason: str) -> None:
        """Note that an error was not replayed."""
        self.failed += 1
        if len(self.failures) < _MOST_FAILURES:
            self.failures.append(Failure(error, reason))


class Delivery:
    """Delivers batches, and journals each part in the transaction that delivers it. Pauses and
    limits hold for replays, too.
    """

    def __init__(
        self,
        session: OperatorTask,
        run: SweepRun,
        queue: QueueSession,
        context: SweepContext,
    ) -> None:
        self._session, self._run, self._queue = session, run, queue
        self._context, self._clock = context, context.world.clock
        clock = self._clock
        breakers = DestinationBreakers(context.breaker, clock)
        # This waits for limits itself.
        no_limits = SliceLimits(RateLimits(), clock)
        self._delivery = SliceDelivery(queue, clock, breakers, no_limits, tracing=context.tracing)
        self._rng = context.world.chance()

    def run(self, batch: Sequence[Item], account: Account) -> Iterator[Tally]:
        """Deliver a batch, in parts between which the command may be stopped."""
        errors = {item.key: item.error for item in batch}
        free = self._without_paused([item.found.message for item in batch], errors, account)
        if len(free) < len(batch):
            yield Tally(refused=len(batch) - len(free))
        unreadable, groups = group_by_destination(free)
        limits = {address: self._context.rate_limits.of(address) for address in groups}
        others = [message for message, _ in unreadable]
        others += [m for address in groups if not limits[address] for m in groups[address]]
        if others:
            yield self._deliver_part(others, errors, account)
        for address, limit in limits.items():
            if limit is not None:
                for part in self._at_pace(limit, groups[address]):
                    yield self._deliver_part(part, errors, account)

    def _without_paused(
        self, messages: Sequence[Message], errors: Mapping[str, ErrorId], account: Account
    ) -> Sequence[Message]:
        with self._session.transaction():
            held, free = self._separate(self._session.hold(self._run, ()), messages)
        for message in held:
            account.fail(errors[message.key], _PAUSED)
        return free

    def _separate(
        self, claim: Claim, messages: Sequence[Message]
    ) -> tuple[list[Message], Sequence[Message]]:
        return Paused(claim.paused, self._context.own_name).separate(messages)

    def _at_pace(self, limit: RateLimit, messages: list[Message]) -> Iterator[list[Message]]:
        """The messages in parts, each when the store says that it may go."""
        for start in range(0, len(messages), limit.at_once):
            part = messages[start : start + limit.at_once]
            self._clock.sleep(self._session.reserve(limit, len(part)))
            yield part

    def _deliver_part(
        self, part: Sequence[Message], errors: Mapping[str, ErrorId], account: Account
    ) -> Tally:
        """Deliver messages. Those without an answer are sent again, and those that were not reached
        go on as long as others are done.
        """
        waiting, delivered, idle = list(part), 0, 0
        unanswered: Counter[str] = Counter()

        def fail(key: str, reason: str) -> None:
            # Whatever came later, it may have arrived.
            told = f"{_NO_ANSWER}; then: {reason}" if unanswered[key] else reason
            account.fail(errors[key], told)

        while waiting and idle < _MOST_TRIES:
            result = self._deliver(waiting, errors)
            delivered += len(result.delivered)
            for key, reason in self._faults(result):
                fail(key, reason)
            unanswered.update(message.key for message in result.released)
            idle = idle + 1 if len(result.unreached) == len(waiting) else 0
            waiting = list(result.unreached)
            for message in result.released:
                if unanswered[message.key] < _MOST_TRIES:
                    waiting.append(message)
                else:
                    account.fail(errors[message.key], _NO_ANSWER)
        for message in waiting:
            fail(message.key, _NOT_SENT)
        return Tally(changed=delivered, refused=len(part) - delivered)

    def _faults(self, result: BatchResult) -> Iterator[tuple[str, str]]:
        for message, error in result.faulty:
            yield message.key, str(error)
        reason = self._delivery.blocked_reason or "The destination takes nothing now"
        for message in result.blocked:
            yield message.key, reason
        for message in result.held:
            yield message.key, _PAUSED

    def _deliver(self, messages: Sequence[Message], errors: Mapping[str, ErrorId]) -> BatchResult:
        """Deliver in one transaction; again if the server rolled it back."""
        return try_again(
            lambda: self._deliver_once(messages, errors),
            lambda _: self._queue.rollback(),
            self._clock,
            self._rng,
        )

    def _deliver_once(
        self, messages: Sequence[Message], errors: Mapping[str, ErrorId]
    ) -> BatchResult:
        with self._session.transaction():
            claim = self._session.hold(self._run, ())
            clock = StoreClock(claim.server_us, self._clock)
            held, free = self._separate(claim, messages)
            result = self._delivery.deliver_all(free, clock)
            result.held += held
            changes = [
                _change(errors[one.message.key], one.message)._replace(queue=one.queue)
                for one in result.delivered
            ]
            if changes:
                self._session.journal_changes(self._run, changes, clock.now_us())
                # The last step before the store's COMMIT. If that fails, and the queue has a
                # transaction of its own, the batch is not journalled, and may be replayed again.
                self._queue.commit()
        return result


class PutBack:
    """Stores batches again, with a new Due, and journals each in the same transaction."""

    def __init__(self, session: OperatorTask, run: SweepRun, due: datetime) -> None:
        self._session, self._run, self._due = session, run, due

    def run(self, batch: Sequence[Item], account: Account) -> Iterator[Tally]:
        """Store a batch."""
        readable = []
        for item in batch:
            fault = item.found.message.headers
            if isinstance(fault, MessageError):
                account.fail(item.error, str(fault))
            else:
                readable.append((_change(item.error, item.found.message), self._new(item.found)))
        refused = put_back(self._session, self._run, readable)
        for change, reason in refused:
            account.fail(ErrorId(change.of or "", change.message.key), reason)
        changed = len(readable) - len(refused)
        yield Tally(changed=changed, refused=len(batch) - changed)

    def _new(self, found: Replayable) -> NewMessage:
        message = found.message
        return NewMessage(
            message.destination, found.stored, message.body, self._due, found.stored_text
        )


def _change(error: ErrorId, message: Message) -> Change:
    return Change(ChangeKind.REPLAYED, message, of=error.sweep_id)
