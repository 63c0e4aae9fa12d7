"""One batch: the forms in which it can run, and its results.

The *careful* form claims, delivers, gives up, finishes and commits, in one transaction. In the
*moved* form the store itself puts the messages into queue tables of its database, all or none, and
their bodies stay in the server. It knows no failures: whatever is unusual rolls the batch back, and
it runs in the careful form.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from duesweep.core.account import SERVICES, Account
from duesweep.core.errors import (
    DestinationError,
    MessageError,
    TransactionLostError,
    UnusualBatchError,
)
from duesweep.core.message import (
    Address,
    Delivered,
    Exhausted,
    Failed,
    Faulty,
    Message,
    Outcome,
    Stays,
    Why,
    make_error_message,
    staying,
)
from duesweep.core.policy import Paused
from duesweep.core.world import StoreClock
from duesweep.drivers.statements import UndoneError
from duesweep.queues.base import QueueSession
from duesweep.stores.task import Claim, Forwarded, Selection, Table, TaskSession
from duesweep.sweep.delivery import SliceDelivery
from duesweep.sweep.destinations import Destinations, LeftMessage
from duesweep.sweep.job import Job

# After this many in a row the careful form alone is cheaper: an unusual batch is run twice.
MOST_UNUSUAL = 3
_AFTER_OTHERS = "not tried, after others that could not be moved"


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """The results of a committed batch. `again` are claim keys for another batch of the
    slice. The destinations of `blocked` messages, which are with them, have a limit or are
    unavailable; `others` are not tried again in this slice.
    """

    account: Account
    again: Sequence[str] = ()
    blocked: Sequence[tuple[Address, LeftMessage]] = ()
    others: Sequence[LeftMessage] = ()


# Runs a batch. None: it is unusual, so it did nothing.
Form = Callable[[Sequence[Forwarded]], BatchEnd | None]


class Batches:
    """The batches of one slice on one session of the store and one of the queues. `unusual` counts
    the slice's batches that could not be moved, by reason. `is_sending`: messages of a careful
    batch go to their queues, until it commits.
    """

    is_sending = False

    def __init__(
        self,
        job: Job,
        slice_number: int,
        store: TaskSession,
        queue: QueueSession,
        *,
        destinations: Destinations,
        unusual: Counter[str],
    ) -> None:
        self._job, self._slice_number = job, slice_number
        self._store, self._queue = store, queue
        self._destinations = destinations
        context = job.context
        self._clock, self._rng = context.world.clock, context.world.chance()
        self._delivery = SliceDelivery(queue, self._clock, destinations)
        self._unusual, self._in_a_row = unusual, 0
        self._can_move = context.may_move and store.can_move
        # Whether the round before may have sent batches in vain, and none has committed since.
        self._was_lost = any(one.name == SERVICES for one in job.outages)

    def forms(self, *, is_usual: bool) -> Iterator[Form]:
        """The forms to try for a batch, one after the other; the last one never returns None.
        `is_usual`: as far as is known, its destinations are available.
        """
        if self._can_move and is_usual:
            if self._in_a_row < MOST_UNUSUAL:
                yield self.moved
            else:
                self._unusual[_AFTER_OTHERS] += 1
        yield self.careful

    def careful(self, groups: Sequence[Forwarded]) -> BatchEnd:
        """Run a batch in which anything may happen, in one transaction."""
        keys = [key for group in groups for key in group.keys]
        job, context, store = self._job, self._job.context, self._store
        with store.transaction():
            claim = store.claim(job.run, keys, self._destinations.left_alone)
            clock = StoreClock(claim.server_us, self._clock)
            held, free = Paused(claim.paused, context.own_name).separate(claim.messages)
            if (self._was_lost or self.is_sending) and not context.queue.shares_transaction:
                self._try_to_finish(free, clock)
            self.is_sending = bool(claim.messages)
            outcomes = self._charge(self._delivery.deliver_all(free, clock))
            outcomes += staying(held, Why.HELD)
            end = self._end(claim, outcomes)
            if end.account.claimed:
                store.finish(job.run, self._slice_number, outcomes, clock.now_us())
                # The last step before the store's COMMIT. If that fails, and the queue has a
                # transaction of its own, the batch is delivered twice.
                self._queue.commit()
        self.is_sending = self._was_lost = False
        return end

    def _try_to_finish(self, messages: Sequence[Message], clock: StoreClock) -> None:
        """Finish the batch in the store as if these messages were delivered, and undo that. A store
        that refuses it, as one with a full disk or a locked table, would do so after each delivery:
        the messages would arrive again and again.
        """
        delivered = [Delivered(message, "") for message in messages]
        with suppress(UndoneError), self._store.transaction():
            self._store.finish(self._job.run, self._slice_number, delivered, clock.now_us())
            raise UndoneError

    def _charge(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Let each faulty message fail, or exhaust within the sweep's limit. That is asked
        before any error message is sent.
        """
        faulty = [one for one in outcomes if isinstance(one, Faulty)]
        if not faulty:
            return outcomes
        job, retry = self._job, self._job.context.retry
        last = [one for one in faulty if retry.is_last(one.message.attempts, one.error)]
        granted = 0
        if last:
            granted = self._store.grant_exhausted(job.run, len(last), retry.max_exhausted_per_sweep)
        out, over_limit = last[:granted], {one.message.key for one in last[granted:]}
        given_up = {one.message.key for one in out}
        failed = [
            Failed(
                one.message,
                one.error,
                retry.backoff_seconds(one.message.attempts, self._rng),
                one.message.key in over_limit,
            )
            for one in faulty
            if one.message.key not in given_up
        ]
        others = [one for one in outcomes if not isinstance(one, Faulty)]
        return [*others, *failed, *self._exhaust(out)]

    def _exhaust(self, faults: Sequence[Faulty]) -> list[Outcome]:
        """Messages that are out of attempts; they stay if the error queue is unavailable."""
        error_queue = self._job.context.retry.error_queue
        if error_queue is None or not faults:
            return [Exhausted(one.message, one.error, None) for one in faults]
        exhausted = self._send_errors(error_queue, faults)
        ended = {one.message.key for one in exhausted}
        rest = [one.message for one in faults if one.message.key not in ended]
        return [*exhausted, *staying(rest, Why.LEFT)]

    def _send_errors(self, error_queue: str, faults: Sequence[Faulty]) -> list[Exhausted]:
        """Send messages that are out of attempts to the error queue. Returns the messages that it
        has, and the ones that it refuses for good, which end in the ledger alone. If it is
        unavailable, the others stay.
        """
        context = self._job.context
        make = partial(
            make_error_message, own_queue=context.store.own_queue, now=context.world.clock.now()
        )
        copies = self._delivery.deliver_error_messages(error_queue, [make(*f) for f in faults])
        arrived, refused = {*copies.arrived}, dict(copies.refused)
        if refused:
            again = [make(*f, is_short=True) for f in faults if f[0].key in refused]
            shorter = self._delivery.deliver_error_messages(error_queue, again)
            arrived |= {*shorter.arrived}
            refused = dict(shorter.refused)
        return [
            Exhausted(
                message,
                error,
                copies.queue if message.key in arrived else None,
                refused.get(message.key),
            )
            for message, error in faults
            if message.key in arrived or message.key in refused
        ]

    def _end(self, claim: Claim, outcomes: Sequence[Outcome]) -> BatchEnd:
        stay: dict[Why, list[Message]] = {why: [] for why in Why}
        for one in outcomes:
            if isinstance(one, Stays):
                stay[one.why].append(one.message)
        failed = [one.message for one in outcomes if isinstance(one, Failed)]
        claim_key, room = self._store.claim_key, self._destinations.room
        blocked = [one for one in stay[Why.BLOCKED] if room(one.destination) is not None]
        # Of the others the destination was tried in this batch, and has taken the first message.
        free = [one for one in stay[Why.BLOCKED] if room(one.destination) is None]
        again = [claim_key(one) for one in (*stay[Why.RELEASED], *stay[Why.UNREACHED], *free)]
        # A Due may lead to another message, now that the held ones are excluded.
        again += [key for one in stay[Why.HELD] if (key := claim_key(one)) != one.key]
        others = (*stay[Why.HELD], *stay[Why.EARLY], *stay[Why.LEFT], *failed)
        return BatchEnd(
            Account(
                claimed=sum(not isinstance(one, Stays) for one in outcomes),
                skipped=claim.skipped,
                gone=claim.gone,
                later=claim.later + len(stay[Why.EARLY]),
                held=claim.held + len(stay[Why.HELD]),
                left=len(stay[Why.LEFT]),
            ),
            [*again, *claim.unread],
            [(one.destination, self._kept(one)) for one in blocked],
            list(map(self._kept, others)),
        )

    def _kept(self, message: Message) -> LeftMessage:
        size = 2 * len(message.headers_text) + message.body_bytes
        return LeftMessage(self._store.claim_key(message), message.key, size)

    def moved(self, groups: Sequence[Forwarded]) -> BatchEnd | None:
        """Run a batch in which nothing is unusual: remove, deliver and journal it, all or none."""
        try:
            # On PostgreSQL its end is the COMMIT.
            left_alone = self._destinations.left_alone
            with self._store.select(self._job.run, groups, left_alone) as selection:
                end = self._move_and_journal(selection)
        except (DestinationError, UnusualBatchError, TransactionLostError) as error:
            self._unusual[str(error)] += 1
            self._in_a_row += 1
            return None
        self._in_a_row = 0
        return end

    def _move_and_journal(self, selection: Selection) -> BatchEnd:
        job, store = self._job, self._store
        tables = {address: self._table(address) for address in selection.addresses}
        moved = store.move(job.run, selection, tables)
        now_us = StoreClock(moved.server_us, self._clock).now_us()
        paused = Paused(moved.paused, job.context.own_name)
        if any(map(paused.holds, tables)):
            raise UnusualBatchError("a destination is paused")
        tombstones = moved.tombstones
        if any(us is not None and us > now_us for us in tombstones.instants_us):
            raise UnusualBatchError("a message is not due yet")
        claimed = len(tombstones.keys)
        if claimed:
            store.finish_moved(job.run, self._slice_number, moved, now_us)
        return BatchEnd(Account(claimed=claimed, gone=moved.gone, later=moved.later))

    def _table(self, address: Address) -> Table:
        """Into which table the store may put messages with this destination."""
        if self._destinations.has_limit(address):
            raise UnusualBatchError("a destination has a limit")
        try:
            table = self._queue.table(self._queue.resolve(address))
        except MessageError as error:
            raise UnusualBatchError(str(error)) from error
        if table is None:
            raise UnusualBatchError("a destination is not a table next to the store")
        return table
