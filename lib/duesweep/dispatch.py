"""What is done with one slice: claim, deliver, decide, finish, batch by batch.

A slice is safe to run twice: rows that are gone or locked are somebody else's work. A service that
fails ends the slice, and the reason is journalled. An unforeseen error is raised: Spark runs the
slice again, up to four times.
"""

import logging
import random
from array import array
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from duesweep.all_or_nothing import AllOrNothing
from duesweep.core.account import SliceAccount, SliceEnd
from duesweep.core.decision import (
    Decision,
    SentErrors,
    conclude,
    count_exhausted,
    decide,
    write_error_messages,
)
from duesweep.core.outcome import Fault
from duesweep.core.store_clock import StoreClock
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
from duesweep.queues.base import QueueSession
from duesweep.stores.base import TaskSession
from duesweep.texts import make_printable

# The standard library's logger: it writes to the executor's stderr without any set-up in a worker.
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClaimKeys:
    """The claim keys of a slice, and the sizes of their messages in bytes, in the same order.
    `total` is how many keys the slice has. None: the read returned nothing, not even the row that
    every slice has.
    """

    keys: Sequence[str]
    sizes: Sequence[int]
    total: int | None

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
    """All claim keys of a slice, from the rows of `Slices.claim_keys_query`. They are read to the
    end before anything is claimed: an open JDBC cursor holds a snapshot, and the server cannot
    vacuum what the sweep removes.
    """
    keys: list[str] = []
    sizes = array("q")
    total: int | None = None
    for row in rows:
        total = row.total or 0
        if row.claim_keys:
            keys += row.claim_keys.split(",")
            sizes.extend(map(int, row.sizes.split(",")))
    return ClaimKeys(keys, sizes, total)


def dispatch_slice(job: DispatchJob, slice_number: int, claim_keys: ClaimKeys) -> None:
    """Dispatch the messages that the claim keys lead to."""
    account = SliceAccount(given=len(claim_keys.keys))
    reason: str | None = None
    try:
        with collect_rarely(), job.store.open_task() as store, job.queue.open(store) as queue:
            batches = _Batches(job, slice_number, store, queue)
            try:
                batches.run_all(claim_keys)
                reason = "; ".join(filter(None, (claim_keys.fault, batches.blocked_reason))) or None
            finally:
                account += batches.account
            store.end_slice(job.run, slice_number, SliceEnd(account, reason))
    except SweepClosedError as error:
        _log.warning("Slice %d of sweep %s stops: %s", slice_number, job.run.sweep_id, error)
    except (StoreError, ConfigError) as error:
        told = make_printable(str(error))
        _log.warning("Slice %d of sweep %s is cut: %s", slice_number, job.run.sweep_id, told)
        # On a new session. Where none can be opened, the missing row says that the slice was cut.
        with suppress(DuesweepError), job.store.open_task() as store:
            store.end_slice(job.run, slice_number, SliceEnd(account, str(error)))


class _Batches:
    """Runs the batches of one slice on its two sessions; `account` counts what they did."""

    def __init__(
        self, job: DispatchJob, slice_number: int, store: TaskSession, queue: QueueSession
    ) -> None:
        self._job = job
        self._slice_number = slice_number
        self._store = store
        self._queue = queue
        self._all_or_nothing = AllOrNothing(job, slice_number, store, queue)
        self._delivery = SliceDelivery(queue, job.clock)
        self._rng = random.Random()
        self._is_stopped = False
        self.account = SliceAccount()

    @property
    def blocked_reason(self) -> str | None:
        """Why destinations took nothing; their messages stay in the store. None: all took some."""
        return self._delivery.blocked_reason

    def run_all(self, claim_keys: ClaimKeys) -> None:
        """Run batch after batch. When the sweep is to stop, leave the rest to the next sweep."""
        for batch in self._job.limits.batches(claim_keys.keys, claim_keys.sizes):
            if self._is_stopped:
                self._leave(batch)
            else:
                self._run_batch(batch)

    def _run_batch(self, batch: Sequence[str]) -> None:
        """Run a batch: in the short form if nothing is unusual."""
        collect_new()
        try:
            account = self._all_or_nothing.run(batch)
        except SweepStoppedError:
            self._leave(batch)
            return
        if account is None:
            self._run_with_care(batch)
        else:
            self.account += account

    def _leave(self, claim_keys: Sequence[str]) -> None:
        self._is_stopped = True
        self.account += SliceAccount(left=len(claim_keys))

    def _run_with_care(self, batch: Sequence[str]) -> None:
        """Run a batch. Messages that it released get a batch of their own."""
        job = self._job
        left, lost = batch, 0
        while left:
            try:
                left, lost = self._run(left), 0
            except SweepStoppedError:
                self._leave(left)
                return
            except TransactionLostError as error:
                self._queue.rollback()
                lost += 1
                if lost > MAX_LOST_TRANSACTIONS:
                    raise
                # What went to RabbitMQ is sent again, and only this line says so.
                _log.warning(
                    "Slice %d of sweep %s claims a batch again: %s",
                    self._slice_number,
                    job.run.sweep_id,
                    make_printable(str(error)),
                )
                job.clock.sleep(wait_seconds(lost, self._rng))
            if left:
                collect_new()

    def _run(self, keys: Sequence[str]) -> Sequence[str]:
        """Run a batch in one transaction. Returns the claim keys left for another batch."""
        job = self._job
        with self._store.transaction():
            claim = self._store.claim(job.run, keys)
            clock = StoreClock(claim.server_us, job.clock)
            result = self._delivery.deliver_all(claim.messages, clock)
            self._store.exclude(result.excluded)
            decision = self._decide(result.faulty)
            sent = self._deliver_error_messages(decision)
            outcomes = conclude(result.delivered, decision, sent, job.retry, self._rng)
            released = [self._store.claim_key(message) for message in result.released]
            if outcomes.claimed:
                self._store.finish(job.run, self._slice_number, outcomes, clock.now_us())
                # The last step before the store's COMMIT. If that fails, and the queue has a
                # transaction of its own, the batch is delivered twice.
                self._queue.commit()
        # Only after the commit: a batch that is rolled back is claimed and counted again.
        self.account += SliceAccount(
            claimed=outcomes.claimed,
            skipped=claim.skipped,
            gone=claim.gone,
            later=claim.later + len(result.early),
            left=len(result.blocked),
        )
        return [*released, *claim.unread]

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
