"""The two ways to replay a batch: deliver it to queues, or put it back into the store."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from duesweep.core.change import Change, ChangeKind
from duesweep.core.clock import Clock
from duesweep.core.error_rows import ErrorId
from duesweep.core.message import Message
from duesweep.core.replay import Replayable
from duesweep.core.store_clock import StoreClock
from duesweep.delivery import SliceDelivery
from duesweep.delivery_result import DeliveryResult
from duesweep.errors import MessageError, TransactionLostError
from duesweep.lost import MAX_LOST_TRANSACTIONS, wait_seconds
from duesweep.queues.base import QueueSession
from duesweep.stores.steering import ChangesMessages
from duesweep.stores.values import NewMessage, SweepRun

# A message that may have arrived or not is sent so often.
_MOST_TRIES = 3
_NO_ANSWER = "The queue did not say whether the message arrived: it may have"
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
    """Delivers batches, and journals each in the transaction that delivers it."""

    def __init__(
        self,
        session: ChangesMessages,
        run: SweepRun,
        queue: QueueSession,
        delivery: SliceDelivery,
        clock: Clock,
    ) -> None:
        self._session, self._run, self._queue = session, run, queue
        self._delivery = delivery
        self._clock = clock
        self._rng = random.Random()

    def run(self, batch: Sequence[Item], account: Account) -> int:
        """Deliver a batch; returns how many arrived. Messages without an answer are sent again."""
        errors = {item.key: item.error for item in batch}
        waiting, delivered = [item.found.message for item in batch], 0
        for _ in range(_MOST_TRIES):
            result = self._deliver(waiting, errors)
            delivered += len(result.delivered)
            for key, reason in self._faults(result):
                account.fail(errors[key], reason)
            waiting = result.released
            if not waiting:
                break
        for message in waiting:
            account.fail(errors[message.key], _NO_ANSWER)
        return delivered

    def _faults(self, result: DeliveryResult) -> Iterator[tuple[str, str]]:
        for message, error in result.faulty:
            yield message.key, str(error)
        reason = self._delivery.blocked_reason or "The destination takes nothing now"
        for message in result.blocked:
            yield message.key, reason

    def _deliver(
        self, messages: Sequence[Message], errors: Mapping[str, ErrorId]
    ) -> DeliveryResult:
        """Deliver in one transaction; again if the server rolled it back."""
        lost = 0
        while True:
            try:
                return self._deliver_once(messages, errors)
            except TransactionLostError:
                self._queue.rollback()
                lost += 1
                if lost > MAX_LOST_TRANSACTIONS:
                    raise
                self._clock.sleep(wait_seconds(lost, self._rng))

    def _deliver_once(
        self, messages: Sequence[Message], errors: Mapping[str, ErrorId]
    ) -> DeliveryResult:
        with self._session.transaction():
            claim = self._session.hold(self._run, ())
            clock = StoreClock(claim.server_us, self._clock)
            result = self._delivery.deliver_all(messages, clock)
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

    def __init__(self, session: ChangesMessages, run: SweepRun, due: datetime) -> None:
        self._session, self._run, self._due = session, run, due

    def run(self, batch: Sequence[Item], account: Account) -> int:
        """Store a batch; returns how many were stored."""
        readable = []
        for item in batch:
            fault = item.found.message.headers
            if isinstance(fault, MessageError):
                account.fail(item.error, str(fault))
            else:
                readable.append((_change(item.error, item.found.message), self._new(item.found)))
        if not readable:
            return 0
        with self._session.transaction():
            server_us = self._session.hold(self._run, ()).server_us
            refused = self._store(readable, server_us)
        for failure in refused:
            account.fail(*failure)
        return len(readable) - len(refused)

    def _store(
        self, messages: Sequence[tuple[Change, NewMessage]], server_us: int
    ) -> list[Failure]:
        """Store messages. If the table refuses a row, store by halves: only that row fails."""
        try:
            with self._session.transaction():
                self._session.put_back(self._run, messages, server_us)
        except MessageError as error:
            if len(messages) == 1:
                ((change, _),) = messages
                return [Failure(ErrorId(change.of or "", change.message.key), str(error))]
            half = len(messages) // 2
            refused = self._store(messages[:half], server_us)
            return refused + self._store(messages[half:], server_us)
        return []

    def _new(self, found: Replayable) -> NewMessage:
        message = found.message
        return NewMessage(
            message.destination, found.stored, message.body, self._due, found.stored_text
        )


def _change(error: ErrorId, message: Message) -> Change:
    return Change(ChangeKind.REPLAYED, message, of=error.sweep_id)
