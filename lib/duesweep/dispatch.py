"""What one Spark task does with its slice: claim, deliver, finish, batch by batch.

A slice is safe to run twice: what is gone or locked is somebody else's work. A service's fault ends
the slice with its reason journalled; only what nobody foresaw raises, and Spark runs it again.
"""

import logging
import random
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pyspark import TaskContext
from pyspark.sql import DataFrame, Row

from duesweep.clock import Clock, SystemClock
from duesweep.errors import (
    ConfigError,
    DestinationError,
    DuesweepError,
    MessageError,
    StoreError,
    SweepClosedError,
    TransactionLostError,
)
from duesweep.fault_headers import faulted
from duesweep.message import Message
from duesweep.outcome import Delivered, Exhausted, Failed, Outcomes
from duesweep.policy import CLAIM_SECONDS, MAX_LOST_TRANSACTIONS, BatchLimits, Retry
from duesweep.queues.base import Destination, Queue, QueueSession
from duesweep.stores.base import Store, TaskSession
from duesweep.stores.values import SweepRun

# The standard library's: it writes to the executor's stderr as it is, without set-up in a worker.
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DispatchJob:
    """Everything a task needs; plain values, so that it can be shipped."""

    store: Store
    queue: Queue
    run: SweepRun
    limits: BatchLimits
    retry: Retry
    max_exhausted: int
    error_queue: str | None
    clock: Clock = field(default_factory=SystemClock)


def dispatch(tickets_df: DataFrame, job: DispatchJob) -> None:
    """Dispatch every slice (partition) of `tickets_df`, by one action."""
    tickets_df.foreachPartition(_task(job))


def _task(job: DispatchJob) -> Callable[[Iterable[Row]], None]:
    def run(rows: Iterable[Row]) -> None:
        context = TaskContext.get()
        assert context is not None  # runs in a task only
        tickets: list[str] = []
        sizes = array("q")
        # All tickets first: the JDBC cursor behind them holds a snapshot as long as it is open.
        for row in rows:
            tickets += row[0].split(",")
            sizes.extend(map(int, row[1].split(",")))
        dispatch_slice(job, context.partitionId(), tickets, sizes)

    return run


def dispatch_slice(
    job: DispatchJob, slice_number: int, tickets: Sequence[str], sizes: Sequence[int]
) -> None:
    """Dispatch the messages that `tickets` lead to (their sizes in bytes beside them)."""
    planned = len(tickets)
    reason: str | None = None
    try:
        with job.store.open_task() as store, job.queue.open(store) as queue:
            batches = _Batches(job, slice_number, store, queue)
            batches.run_all(tickets, sizes)
            reason = batches.blocked_reason
            store.end_slice(job.run, slice_number, planned, reason)
    except SweepClosedError as error:
        _log.warning("Slice %d stops: %s", slice_number, error)
    except (StoreError, ConfigError) as error:
        _log.warning("Slice %d is cut: %s", slice_number, error)
        # On a new session; where there is none to be had, the missing row says that it was cut.
        with suppress(DuesweepError), job.store.open_task() as store:
            store.end_slice(job.run, slice_number, planned, str(error))


class _Batches:
    """The batches of one slice, over its two sessions."""

    def __init__(
        self, job: DispatchJob, slice_number: int, store: TaskSession, queue: QueueSession
    ) -> None:
        self._job = job
        self._slice_number = slice_number
        self._store = store
        self._queue = queue
        self._rng = random.Random()
        self._blocked: dict[str | None, str] = {}

    @property
    def blocked_reason(self) -> str | None:
        """Why destinations took nothing, where some did; their messages were left."""
        return "; ".join(sorted(set(self._blocked.values()))) or None

    def run_all(self, tickets: Sequence[str], sizes: Sequence[int]) -> None:
        """Run batch after batch; what a slow batch put back goes into one of its own."""
        for batch in self._job.limits.batches(tickets, sizes):
            left, lost = batch, 0
            while left:
                try:
                    left, lost = self._run(left), 0
                except TransactionLostError as error:
                    self._queue.rollback()
                    lost += 1
                    if lost > MAX_LOST_TRANSACTIONS:
                        raise
                    _log.info("Slice %d claims a batch again: %s", self._slice_number, error)

    def _run(self, tickets: Sequence[str]) -> Sequence[str]:
        job, clock = self._job, self._job.clock
        with self._store.transaction():
            claim = self._store.claim(job.run, tickets)
            claimed_at = clock.seconds()
            outcomes, put_back = self._deliver(claim.messages, claimed_at + CLAIM_SECONDS)
            if outcomes.claimed:
                elapsed_us = int((clock.seconds() - claimed_at) * 1_000_000)
                now_us = claim.server_us + elapsed_us
                self._store.finish(job.run, self._slice_number, outcomes, now_us)
                # Last, so that only the store's COMMIT can still fail: where the queue has a
                # transaction of its own, the batch would then be delivered again.
                self._queue.commit()
        return [*put_back, *claim.unread]

    def _deliver(
        self, messages: Sequence[Message], deadline: float
    ) -> tuple[Outcomes, Sequence[str]]:
        delivered: list[Delivered] = []
        faulty: list[tuple[Message, MessageError]] = []
        put_back: list[str] = []
        for address, group in _by_destination(messages, faulty).items():
            if (delivered or faulty) and self._job.clock.seconds() > deadline:
                put_back += map(self._store.ticket, group)
                continue
            if address not in self._blocked:
                self._deliver_group(address, group, delivered, faulty)
            if address in self._blocked:
                self._store.pass_over(group)
        return self._outcomes(delivered, faulty), put_back

    def _deliver_group(
        self,
        address: str | None,
        group: Sequence[Message],
        delivered: list[Delivered],
        faulty: list[tuple[Message, MessageError]],
    ) -> None:
        try:
            destination = self._queue.resolve(address)
            refused = self._try_deliver(address, destination, group)
        except DestinationError as error:
            self._blocked[address] = str(error)
            return
        except MessageError as error:
            faulty += [(message, error) for message in group]
            return
        queue = str(destination)
        delivered += [Delivered(m, queue) for m in group if m.key not in refused]
        faulty += [(m, refused[m.key]) for m in group if m.key in refused]

    def _try_deliver(
        self, address: str | None, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        try:
            return self._queue.deliver(destination, messages)
        except TransactionLostError as error:
            # Claimed again, the batch is to do without it.
            if error.destination_is_at_fault:
                self._blocked[address] = str(error)
            raise

    def _outcomes(
        self, delivered: Sequence[Delivered], faulty: Sequence[tuple[Message, MessageError]]
    ) -> Outcomes:
        retry = self._job.retry
        last = [(m, e) for m, e in faulty if retry.is_last(m.attempts, e)]
        granted = self._grant(len(last))
        exhausted = self._exhaust(last[:granted])
        gone = {outcome.message.key for outcome in exhausted}
        failed = [
            Failed(m, e, retry.backoff_seconds(m.attempts, self._rng))
            for m, e in faulty
            if m.key not in gone
        ]
        held_back = len(last) - granted
        return Outcomes(tuple(delivered), tuple(failed), tuple(exhausted), held_back)

    def _grant(self, wanted: int) -> int:
        job = self._job
        return self._store.grant_exhausted(job.run, wanted, job.max_exhausted) if wanted else 0

    def _exhaust(self, chosen: Sequence[tuple[Message, MessageError]]) -> list[Exhausted]:
        job = self._job
        if job.error_queue is None or not chosen:
            return [Exhausted(message, error, None) for message, error in chosen]
        if job.error_queue in self._blocked:
            return []
        try:
            destination = self._queue.resolve(job.error_queue)
            letters = [faulted(m, e, own_queue=job.store.own_queue) for m, e in chosen]
            refused = self._try_deliver(job.error_queue, destination, letters)
        except (DestinationError, MessageError) as error:
            # Out of attempts, but with nowhere to go: they stay, as failures.
            self._blocked[job.error_queue] = str(error)
            return []
        queue = str(destination)
        return [Exhausted(m, e, queue) for m, e in chosen if m.key not in refused]


def _by_destination(
    messages: Iterable[Message], faulty: list[tuple[Message, MessageError]]
) -> dict[str | None, list[Message]]:
    groups: dict[str | None, list[Message]] = {}
    for message in messages:
        if isinstance(message.headers, MessageError):
            faulty.append((message, message.headers))
        else:
            groups.setdefault(message.destination, []).append(message)
    return groups
