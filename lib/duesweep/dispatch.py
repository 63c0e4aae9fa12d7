"""What is done with one slice: claim, deliver, decide, finish, batch by batch.

A slice is safe to run twice: rows that are gone or locked are somebody else's work. If a service
fails, the slice goes on with new sessions; if it fails for too long, the slice ends, and the reason
is journalled. An unforeseen error is raised: Spark runs the slice again, up to four times.
"""

import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

from duesweep.all_or_nothing import AllOrNothing
from duesweep.blocked import BlockedMessages, find_left_alone
from duesweep.claim_keys import ClaimKeys
from duesweep.core.account import SliceAccount, SliceEnd
from duesweep.core.decision import (
    Decision,
    SentErrors,
    conclude,
    count_exhausted,
    decide,
    write_error_messages,
)
from duesweep.core.destination_breakers import DestinationBreakers
from duesweep.core.outcome import Fault
from duesweep.core.pauses import Paused
from duesweep.core.rate_limits import SliceLimits
from duesweep.core.share import Share
from duesweep.core.store_clock import StoreClock
from duesweep.core.tracing import Attributes
from duesweep.delivery import SliceDelivery
from duesweep.dispatch_job import DispatchJob
from duesweep.errors import (
    ConfigError,
    DuesweepError,
    StoreError,
    SweepClosedError,
    SweepStoppedError,
    TransactionLostError,
)
from duesweep.garbage import collect_new, collect_rarely
from duesweep.lost import MAX_LOST_TRANSACTIONS, wait_seconds
from duesweep.new_sessions import SessionBreaker, run_on_sessions
from duesweep.queues.base import QueueSession
from duesweep.stores.base import TaskSession
from duesweep.texts import make_printable
from duesweep.turns import Turns

# The standard library's logger: it writes to the executor's stderr without any set-up in a worker.
_log = logging.getLogger(__name__)


def dispatch_slice(job: DispatchJob, slice_number: int, claim_keys: ClaimKeys) -> None:
    """Dispatch the messages that the claim keys lead to."""
    attributes: Attributes = {
        "duesweep.sweep_id": str(job.run.sweep_id),
        "duesweep.slice": slice_number,
    }
    with job.tracing.recording("slice", attributes):
        _dispatch(job, slice_number, claim_keys)


def _dispatch(job: DispatchJob, slice_number: int, claim_keys: ClaimKeys) -> None:
    batches = _Batches(job, slice_number, claim_keys)
    number = batches.slice_number
    try:
        with collect_rarely():
            run_on_sessions(job, batches.breaker, batches.run)
    except SweepClosedError as error:
        _log.warning("Slice %d of sweep %s stops: %s", number, job.run.sweep_id, error)
    except (StoreError, ConfigError) as error:
        told = make_printable(str(error))
        _log.warning("Slice %d of sweep %s is cut: %s", number, job.run.sweep_id, told)
        # On a new session. Where none can be opened, the missing row says that the slice was cut.
        with suppress(DuesweepError), job.store.open_task() as store:
            store.end_slice(job.run, number, batches.end(str(error)))


class _Batches:
    """Runs the batches of one slice, on new sessions if a service has failed."""

    _store: TaskSession
    _queue: QueueSession
    _delivery: SliceDelivery
    _all_or_nothing: AllOrNothing

    def __init__(self, job: DispatchJob, slice_number: int, claim_keys: ClaimKeys) -> None:
        self._job = job
        # As the journal counts it.
        self.slice_number = job.first_slice + slice_number
        self._fault = claim_keys.fault
        self._share = Share(None if job.shares is None else job.shares[slice_number])
        self._to_do = self._share.cut(job.limits.batches(claim_keys.keys, claim_keys.sizes))
        # What is not done yet of the batch under way. If the sessions fail, it is claimed again.
        self._in_hand: Sequence[str] = ()
        self.breaker = SessionBreaker(job)
        self._breakers = DestinationBreakers(job.breaker, job.clock)
        self._rates = SliceLimits(job.rate_limits, job.clock)
        self._blocked = BlockedMessages(self._breakers, self._rates, job.limits)
        self._turns = Turns(job, self._breakers, self._rates, self._blocked)
        self._rng = random.Random()
        self._account = SliceAccount(given=len(claim_keys.keys))

    def run(self, store: TaskSession, queue: QueueSession) -> None:
        """Run what is left of the slice, batch after batch, and journal its end."""
        job = self._job
        self._store, self._queue = store, queue
        self._delivery = SliceDelivery(
            queue, job.clock, self._breakers, self._rates, tracing=job.tracing
        )
        self._all_or_nothing = AllOrNothing(
            job, self.slice_number, store, queue, limits=self._rates
        )
        self._blocked.exclude_all(store)
        try:
            self._run_all()
        except SweepStoppedError:
            self._leave_all()
        reasons = (self._fault, self._delivery.blocked_reason)
        store.end_slice(job.run, self.slice_number, self.end("; ".join(filter(None, reasons))))

    def end(self, reason: str | None) -> SliceEnd:
        """The end of the slice. What still waits for a destination is left."""
        account = self._account + SliceAccount(left=self._blocked.left)
        reports = self._blocked.reports(self._job.store.own_queue, self.breaker.circuit)
        return SliceEnd(account, reason or None, tuple(reports))

    def _run_all(self) -> None:
        self._run_with_care(self._in_hand)
        for batch in self._to_do:
            self._run_batch(batch)
            self._turns.try_destinations(self._store, self._run_more)
        self._turns.go_on(self._store, self._run_more)
        while self._share.room(1) and (seconds := self._turns.seconds_to_next) is not None:
            self._turns.wait(self._store, seconds)
            self._turns.go_on(self._store, self._run_more)

    def _leave_all(self) -> None:
        """Leave to the next sweep what is not done."""
        left = len(self._in_hand) + sum(map(len, self._to_do))
        self._in_hand = ()
        self._account += SliceAccount(left=left)

    def _run_batch(self, batch: Sequence[str]) -> None:
        """Run a batch, in the short form where nothing is unusual."""
        collect_new()
        self._in_hand = batch
        if not self._share.room(len(batch)):
            raise SweepStoppedError("The slice has claimed its share")
        account = self._all_or_nothing.run(batch) if self._breakers.all_closed else None
        if account is None:
            self._run_with_care(batch)
        else:
            self._succeed(account)

    def _run_more(self, batch: Sequence[str]) -> int:
        """Run a batch that waited for its destination, as far as the slice may. Returns how many
        were claimed.
        """
        room = self._share.room(len(batch))
        claimed = self._run_with_care(batch[:room])
        if room < len(batch):
            self._in_hand = batch[room:]
            raise SweepStoppedError("The slice has claimed its share")
        return claimed

    def _run_with_care(self, batch: Sequence[str]) -> int:
        """Run a batch. Messages that it released get a batch of their own. Returns how many were
        claimed.
        """
        job, before = self._job, self._account.claimed
        self._in_hand, lost = batch, 0
        while self._in_hand:
            try:
                self._in_hand, lost = self._run(self._in_hand), 0
            except TransactionLostError as error:
                self._queue.rollback()
                lost += 1
                if lost > MAX_LOST_TRANSACTIONS:
                    raise
                # What went to RabbitMQ is sent again, and only this line says so.
                _log.warning(
                    "Slice %d of sweep %s claims a batch again: %s",
                    self.slice_number,
                    job.run.sweep_id,
                    make_printable(str(error)),
                )
                job.clock.sleep(wait_seconds(lost, self._rng))
            if self._in_hand:
                collect_new()
        return self._account.claimed - before

    def _run(self, keys: Sequence[str]) -> Sequence[str]:
        """Run a batch in one transaction. Returns the claim keys left for another batch."""
        job, store = self._job, self._store
        with store.transaction():
            claim = store.claim(job.run, keys)
            clock = StoreClock(claim.server_us, job.clock)
            held, free = Paused(claim.paused, job.own_name).separate(claim.messages)
            if claim.messages:
                self.breaker.begin_sending()
            result = self._delivery.deliver_all(free, clock)
            result.held += held
            decision = self._decide(result.faulty)
            sent = self._deliver_error_messages(decision)
            outcomes = conclude(result.delivered, decision, sent, job.retry, rng=self._rng)
            released = [store.claim_key(m) for m in result.released + result.unreached]
            # A Due may lead to another message, now that these are excluded.
            found = [(store.claim_key(message), message.key) for message in result.held]
            released += [claim_key for claim_key, key in found if claim_key != key]
            left_alone = find_left_alone(store, result, outcomes)
            if outcomes.claimed:
                store.finish(job.run, self.slice_number, outcomes, clock.now_us())
                # The last step before the store's COMMIT. If that fails, and the queue has a
                # transaction of its own, the batch is delivered twice.
                self._queue.commit()
        # Only after the commit: a batch that is rolled back is claimed and counted again.
        self._blocked.add(store, left_alone)
        self._succeed(
            SliceAccount(
                claimed=outcomes.claimed,
                skipped=claim.skipped,
                gone=claim.gone,
                later=claim.later + len(result.early),
                held=len(result.held),
                left=len(result.undeferred),
            )
        )
        return [*released, *claim.unread]

    def _succeed(self, account: SliceAccount) -> None:
        """Count a batch that is committed."""
        if account.claimed:
            self._job.progressed()
        self._in_hand = ()
        self._account += account
        self._share.claimed += account.claimed
        self.breaker.succeed(account.claimed)

    def _decide(self, faulty: Sequence[Fault]) -> Decision:
        """Decide with what the sweep's limit grants, before any error message is sent."""
        job = self._job
        wanted = count_exhausted(faulty, job.retry)
        granted = 0
        if wanted:
            granted = self._store.grant_exhausted(job.run, wanted, job.max_exhausted)
        return decide(faulty, job.retry, granted)

    def _deliver_error_messages(self, decision: Decision) -> SentErrors | None:
        job = self._job
        if job.error_queue is None:
            return None
        if not decision.exhausted:
            return SentErrors()
        messages = write_error_messages(decision, job.store.own_queue, datetime.now(UTC))
        return SentErrors(*self._delivery.deliver_error_messages(job.error_queue, messages))
