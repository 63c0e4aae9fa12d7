"""The short form of a batch: messages are removed as they are claimed, and delivered all or none.

It costs half the statements, and serves most batches. It knows no failures: whatever is unusual
rolls the batch back, and `dispatch` runs it in the careful form. So store and queues have to share
a transaction, which undoes the deliveries too.
"""

import logging
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from duesweep.core.account import SliceAccount
from duesweep.core.fault_headers import make_error_message
from duesweep.core.message import Message
from duesweep.core.outcome import Delivered, Exhausted, Failed, Fault, Outcomes
from duesweep.core.pauses import Paused
from duesweep.core.policy import CLAIM_SECONDS, Retry
from duesweep.core.world import StoreClock
from duesweep.errors import (
    DestinationError,
    MessageError,
    TransactionLostError,
    UnusualBatchError,
)
from duesweep.queues.base import QueueSession
from duesweep.stores.abilities import TakesMessages
from duesweep.stores.base import TaskSession
from duesweep.sweep.delivery import group_by_destination, send_span
from duesweep.sweep.job import Job
from duesweep.sweep.waiting import SliceLimits

_log = logging.getLogger(__name__)

# After so many in a slice the careful form is cheaper: an unusual batch is run twice.
_MOST_UNUSUAL = 3


class AllOrNothing:
    """Runs batches of one slice in the short form, as long as that pays."""

    def __init__(
        self,
        job: Job,
        slice_number: int,
        store: TaskSession,
        queue: QueueSession,
        *,
        limits: SliceLimits,
    ) -> None:
        self._job = job
        self._limits = limits
        self._slice_number = slice_number
        self._store = store
        self._queue = queue
        self._unusual = 0
        self._paused = Paused()
        # Not where the methods are inherited: see `TakesMessages`.
        self._can_take = job.context.queue.shares_transaction and "take" in vars(type(store))
        # The contract's own answer would roll back each batch.
        self._can_append = type(queue).append is not QueueSession.append

    def run(self, keys: Sequence[str]) -> SliceAccount | None:
        """Run a batch. None: nothing was done, it has to be run in the careful form."""
        store = self._store
        if (
            self._unusual >= _MOST_UNUSUAL
            or not self._can_take
            or not isinstance(store, TakesMessages)
            or not store.can_take
            or not self._can_append
        ):
            return None
        try:
            with self._store.transaction():
                return self._run(store, keys)
        except (DestinationError, UnusualBatchError, TransactionLostError) as error:
            self._unusual += 1
            reason = str(error)
        _log.info("Slice %d: the careful form, because of: %s", self._slice_number, reason)
        return None

    def _run(self, store: TakesMessages, keys: Sequence[str]) -> SliceAccount:
        job = self._job
        claim = store.take(job.run, keys)
        clock = StoreClock(claim.server_us, job.context.world.clock)
        self._paused = Paused(claim.paused, job.context.own_name)
        outcomes = Outcomes(delivered=tuple(self._deliver(claim.messages, clock)))
        if outcomes.claimed:
            store.finish_taken(job.run, self._slice_number, outcomes, clock.now_us())
        return SliceAccount(claimed=outcomes.claimed, gone=claim.gone, later=claim.later)

    def _deliver(self, messages: Sequence[Message], store_clock: StoreClock) -> list[Delivered]:
        deadline = self._job.context.world.clock.seconds() + CLAIM_SECONDS
        unreadable, groups = group_by_destination(messages)
        if unreadable:
            raise UnusualBatchError(str(unreadable[0][1]))
        if store_clock.waits(messages):
            raise UnusualBatchError("a message is not due yet")
        delivered: list[Delivered] = []
        for address, group in groups.items():
            if self._job.context.world.clock.seconds() > deadline:
                raise UnusualBatchError("the destinations take long")
            if self._paused.holds(address) or self._limits.holds(address):
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


@dataclass(frozen=True, slots=True)
class Decision:
    """`faulty` are all messages with a fault. `exhausted` are those of them that leave the store.
    `over_limit` counts messages that are out of attempts but stay, since the sweep has exhausted
    as many as it may.
    """

    faulty: Sequence[Fault] = ()
    exhausted: Sequence[Fault] = ()
    over_limit: int = 0


@dataclass(frozen=True, slots=True)
class SentErrors:
    """What became of error messages: the keys of those that `arrived`, and the name of the error
    `queue`. The name is None where the error queue takes nothing.
    """

    queue: str | None = None
    arrived: Collection[str] = frozenset()


def count_exhausted(faulty: Sequence[Fault], retry: Retry) -> int:
    """How many messages are out of attempts."""
    return len(_find_exhausted(faulty, retry))


def decide(faulty: Sequence[Fault], retry: Retry, granted: int) -> Decision:
    """Which messages are exhausted: the first `granted` of those that are out of attempts."""
    found = _find_exhausted(faulty, retry)
    return Decision(faulty, found[:granted], len(found) - granted)


def write_error_messages(decision: Decision, own_queue: str, now: datetime) -> list[Message]:
    """The error messages for the exhausted messages; `now` is the time of their failure."""
    return [make_error_message(m, e, own_queue=own_queue, now=now) for m, e in decision.exhausted]


def conclude(
    delivered: Sequence[Delivered],
    decision: Decision,
    sent: SentErrors | None,
    retry: Retry,
    *,
    rng: random.Random,
) -> Outcomes:
    """The outcomes of a batch. An exhausted message whose error message did not arrive stays in the
    store, as a failure. `sent` None: there is no error queue.
    """
    queue = None if sent is None else sent.queue
    exhausted = tuple(
        Exhausted(message, error, queue)
        for message, error in decision.exhausted
        if sent is None or message.key in sent.arrived
    )
    leaving = {outcome.message.key for outcome in exhausted}
    failed = tuple(
        Failed(message, error, retry.backoff_seconds(message.attempts, rng))
        for message, error in decision.faulty
        if message.key not in leaving
    )
    return Outcomes(tuple(delivered), failed, exhausted, decision.over_limit)


def _find_exhausted(faulty: Sequence[Fault], retry: Retry) -> list[Fault]:
    return [(m, e) for m, e in faulty if retry.is_last(m.attempts, e)]
