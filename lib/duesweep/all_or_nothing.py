"""The short form of a batch: messages are removed as they are claimed, and delivered all or none.

It costs half the statements, and serves most batches. It knows no failures: whatever is unusual
rolls the batch back, and `dispatch` runs it in the careful form. So store and queues have to share
a transaction, which undoes the deliveries too.
"""

import logging
from collections.abc import Sequence

from duesweep.core.account import SliceAccount
from duesweep.core.message import Message
from duesweep.core.outcome import Delivered, Outcomes
from duesweep.core.pauses import Paused
from duesweep.core.policy import CLAIM_SECONDS
from duesweep.core.rate_limits import SliceLimits
from duesweep.core.store_clock import StoreClock
from duesweep.delivery import group_by_destination, send_span
from duesweep.dispatch_job import DispatchJob
from duesweep.errors import (
    DestinationError,
    MessageError,
    TransactionLostError,
    UnusualBatchError,
)
from duesweep.queues.base import QueueSession
from duesweep.stores.abilities import TakesMessages
from duesweep.stores.base import TaskSession

_log = logging.getLogger(__name__)

# After so many in a slice the careful form is cheaper: an unusual batch is run twice.
_MOST_UNUSUAL = 3


class AllOrNothing:
    """Runs batches of one slice in the short form, as long as that pays."""

    def __init__(
        self,
        job: DispatchJob,
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
        self._can_take = job.queue.shares_transaction and "take" in vars(type(store))
        # The contract's own answer would roll back each batch.
        self._can_append = type(queue).append is not QueueSession.append

    def run(self, keys: Sequence[str]) -> SliceAccount | None:
        """Run a batch. None: nothing was done, it has to be run in the careful form."""
        store = self._store
        if (
            self._unusual >= _MOST_UNUSUAL
            or not self._can_take
            or not isinstance(store, TakesMessages)
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
        clock = StoreClock(claim.server_us, job.clock)
        self._paused = Paused(claim.paused, job.own_name)
        outcomes = Outcomes(delivered=tuple(self._deliver(claim.messages, clock)))
        if outcomes.claimed:
            store.finish_taken(job.run, self._slice_number, outcomes, clock.now_us())
        return SliceAccount(claimed=outcomes.claimed, gone=claim.gone, later=claim.later)

    def _deliver(self, messages: Sequence[Message], store_clock: StoreClock) -> list[Delivered]:
        deadline = self._job.clock.seconds() + CLAIM_SECONDS
        unreadable, groups = group_by_destination(messages)
        if unreadable:
            raise UnusualBatchError(str(unreadable[0][1]))
        if store_clock.waits(messages):
            raise UnusualBatchError("a message is not due yet")
        delivered: list[Delivered] = []
        for address, group in groups.items():
            if self._job.clock.seconds() > deadline:
                raise UnusualBatchError("the destinations take long")
            if self._paused.holds(address) or self._limits.holds(address):
                raise UnusualBatchError("a destination is paused or has a limit")
            try:
                destination = self._queue.resolve(address)
            except MessageError as error:
                raise UnusualBatchError(str(error)) from error
            with self._job.tracing.span(*send_span(destination, group)):
                self._queue.append(destination, group)
            name = str(destination)
            delivered += [Delivered(message, name) for message in group]
        return delivered
