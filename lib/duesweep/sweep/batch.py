"""One batch: the forms in which it can run, and what it comes to.

The *careful* form claims, delivers, gives up, finishes and commits, in one transaction. In the
*taken* form messages are removed as they are claimed, and delivered all or none: it costs half the
statements, and serves most batches. It knows no failures: whatever is unusual rolls the batch back,
and it runs in the careful form. So store and queues have to share a transaction, which undoes the
deliveries too.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random

from duesweep.core.account import Account
from duesweep.core.errors import (
    DestinationError,
    MessageError,
    TransactionLostError,
    UnusualBatchError,
)
from duesweep.core.message import (
    Address,
    BatchResult,
    Delivered,
    Exhausted,
    Failed,
    Fault,
    Message,
    make_error_message,
)
from duesweep.core.policy import CLAIM_SECONDS, Paused, Retry
from duesweep.core.world import StoreClock
from duesweep.queues.base import QueueSession
from duesweep.stores.base import TaskSession
from duesweep.sweep.delivery import SliceDelivery, group_by_destination, send_span
from duesweep.sweep.job import Job
from duesweep.sweep.waiting import DestinationBreakers, SliceLimits, Waiting

_log = logging.getLogger(__name__)

# After so many in a session the careful form alone is cheaper: an unusual batch is run twice.
_MOST_UNUSUAL = 3


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """What a batch came to that is committed. `again` are claim keys for another batch of the
    slice. `blocked` messages wait until their destination may get messages again, each with its
    destination; `others` are left alone for the whole slice.
    """

    account: Account
    again: Sequence[str] = ()
    blocked: Sequence[tuple[Address, Waiting]] = ()
    others: Sequence[Waiting] = ()


# Runs the batch of these claim keys. None: it is unusual, and nothing was done.
Form = Callable[[Sequence[str]], BatchEnd | None]


class Batches:
    """The batches of one slice on one session of the store and one of the queues. `begin_sending`
    is called before messages of a careful batch go to their queues.
    """

    def __init__(
        self,
        job: Job,
        slice_number: int,
        store: TaskSession,
        queue: QueueSession,
        *,
        breakers: DestinationBreakers,
        limits: SliceLimits,
        begin_sending: Callable[[], None],
    ) -> None:
        self._job, self._slice_number = job, slice_number
        self._store, self._queue = store, queue
        self._breakers, self._limits = breakers, limits
        self._begin_sending = begin_sending
        context = job.context
        self._clock, self._rng = context.world.clock, context.world.chance()
        self._delivery = SliceDelivery(
            queue, self._clock, breakers, limits, tracing=context.tracing
        )
        self._unusual = 0
        self._can_take = (
            context.queue.shares_transaction
            and _takes(store)
            # The contract's own answer would roll back each batch.
            and type(queue).append is not QueueSession.append
        )

    @property
    def blocked_reason(self) -> str | None:
        """Why destinations take nothing, or cannot defer messages; None: all can."""
        return self._delivery.blocked_reason

    def forms(self) -> Iterator[Form]:
        """The forms to try for a batch, one after the other; the last one never returns None."""
        if self._can_take and self._unusual < _MOST_UNUSUAL and self._breakers.all_closed:
            yield self._taken
        yield self.careful

    def careful(self, keys: Sequence[str]) -> BatchEnd:
        """Run a batch in which anything may happen, in one transaction."""
        job, context, store = self._job, self._job.context, self._store
        with store.transaction():
            claim = store.claim(job.run, keys)
            clock = StoreClock(claim.server_us, self._clock)
            held, free = Paused(claim.paused, context.own_name).separate(claim.messages)
            if claim.messages:
                self._begin_sending()
            result = self._delivery.deliver_all(free, clock)
            result.held = held
            self._give_up(result)
            end = BatchEnd(
                Account(
                    claimed=result.claimed,
                    skipped=claim.skipped,
                    gone=claim.gone,
                    later=claim.later + len(result.early),
                    held=len(result.held),
                    left=len(result.undeferred),
                ),
                [*self._claimed_again(result), *claim.unread],
                [(message.destination, self._waiting(message)) for message in result.blocked],
                [self._waiting(message) for message in _staying(result)],
            )
            if result.claimed:
                store.finish(job.run, self._slice_number, result, clock.now_us())
                # The last step before the store's COMMIT. If that fails, and the queue has a
                # transaction of its own, the batch is delivered twice.
                self._queue.commit()
        return end

    def _give_up(self, result: BatchResult) -> None:
        """Let faulty messages fail or exhaust, with what the sweep's limit grants. That is asked
        before any error message is sent.
        """
        job, context = self._job, self._job.context
        last = out_of_attempts(result.faulty, context.retry)
        granted = 0
        if last:
            granted = self._store.grant_exhausted(job.run, len(last), context.max_exhausted)
        exhausted, result.over_limit = last[:granted], len(last) - granted
        queue = None
        if context.error_queue is not None and exhausted:
            now = context.world.clock.now()
            messages = error_messages(exhausted, context.store.own_queue, now)
            queue, arrived = self._delivery.deliver_error_messages(context.error_queue, messages)
            exhausted = [fault for fault in exhausted if fault[0].key in arrived]
        give_up(result, exhausted, queue, context.retry, rng=self._rng)

    def _claimed_again(self, result: BatchResult) -> Iterator[str]:
        for message in (*result.released, *result.unreached):
            yield self._store.claim_key(message)
        for message in result.held:
            # A Due may lead to another message, now that these are excluded.
            if (claim_key := self._store.claim_key(message)) != message.key:
                yield claim_key

    def _waiting(self, message: Message) -> Waiting:
        size = 2 * len(message.headers_text) + message.body_bytes
        return Waiting(self._store.claim_key(message), message.key, size)

    def _taken(self, keys: Sequence[str]) -> BatchEnd | None:
        """Run a batch in which nothing is unusual: remove, deliver and journal it, all or none."""
        try:
            with self._store.transaction():
                return self._take_all(keys)
        except (DestinationError, UnusualBatchError, TransactionLostError) as error:
            self._unusual += 1
            reason = str(error)
        _log.info("Slice %d: the careful form, because of: %s", self._slice_number, reason)
        return None

    def _take_all(self, keys: Sequence[str]) -> BatchEnd:
        job, store = self._job, self._store
        claim = store.take(job.run, keys)
        clock = StoreClock(claim.server_us, self._clock)
        paused = Paused(claim.paused, job.context.own_name)
        result = BatchResult(self._append_all(claim.messages, paused, clock))
        if result.claimed:
            store.finish_taken(job.run, self._slice_number, result, clock.now_us())
        return BatchEnd(Account(claimed=result.claimed, gone=claim.gone, later=claim.later))

    def _append_all(
        self, messages: Sequence[Message], paused: Paused, store_clock: StoreClock
    ) -> list[Delivered]:
        deadline = self._clock.seconds() + CLAIM_SECONDS
        unreadable, groups = group_by_destination(messages)
        if unreadable:
            raise UnusualBatchError(str(unreadable[0][1]))
        if store_clock.waits(messages):
            raise UnusualBatchError("a message is not due yet")
        delivered: list[Delivered] = []
        for address, group in groups.items():
            if self._clock.seconds() > deadline:
                raise UnusualBatchError("the destinations take long")
            if paused.holds(address) or self._limits.holds(address):
                raise UnusualBatchError("a destination is paused or has a limit")
            try:
                destination = self._queue.resolve(address)
            except MessageError as error:
                raise UnusualBatchError(str(error)) from error
            with self._job.context.tracing.span(*send_span(destination, group)):
                self._queue.append(destination, group)
            name = str(destination)
            delivered += [Delivered(message, name) for message in group]
        return delivered


def out_of_attempts(faulty: Sequence[Fault], retry: Retry) -> list[Fault]:
    """The messages for which this was the last attempt."""
    return [(m, e) for m, e in faulty if retry.is_last(m.attempts, e)]


def error_messages(exhausted: Sequence[Fault], own_queue: str, now: datetime) -> list[Message]:
    """What the error queue gets for exhausted messages; `now` is the time of their failure."""
    return [make_error_message(m, e, own_queue=own_queue, now=now) for m, e in exhausted]


def give_up(
    result: BatchResult, exhausted: Sequence[Fault], queue: str | None, retry: Retry, *, rng: Random
) -> None:
    """Let each of the result's faulty messages be exhausted, if it is one of these, or else fail.
    `queue` is the error queue that has the exhausted ones; None: there is none.
    """
    leaving = {message.key for message, _ in exhausted}
    result.exhausted = [Exhausted(message, error, queue) for message, error in exhausted]
    result.failed = [
        Failed(message, error, retry.backoff_seconds(message.attempts, rng))
        for message, error in result.faulty
        if message.key not in leaving
    ]


def _staying(result: BatchResult) -> Iterator[Message]:
    """The messages that no other batch of the slice may claim."""
    yield from result.held
    yield from result.early
    yield from result.undeferred
    for failed in result.failed:
        yield failed.message


def _takes(store: TaskSession) -> bool:
    """Whether the session may run the short form: the class that has its `claim` has its `take`,
    too. A store that derives from another one, and claims in its own way, has to be asked for its
    claims.
    """
    owner = next(kind for kind in type(store).__mro__ if "claim" in vars(kind))
    return store.can_take and "take" in vars(owner)
