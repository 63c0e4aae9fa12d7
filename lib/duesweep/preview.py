"""Counts where a store's messages would go, and moves nothing.

Messages are claimed as a sweep would claim them, then read, and the claim is rolled back. This
process does it, without Spark: a preview may take its time.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from duesweep.core.errors import DestinationError, MessageError
from duesweep.core.message import Message
from duesweep.core.policy import Slicing, delay_level
from duesweep.core.world import Clock, StoreClock
from duesweep.queues.base import Queue, QueueSession
from duesweep.stores.base import Claim, Horizon, Store, SweepRun, TaskSession
from duesweep.sweep.job import SweepContext
from duesweep.sweep.slice import read_claim_keys

_TOO_LATE = "It is due later than the delay ladder can hold it"
_HOLDS_NOTHING = "It is not due, and its queue cannot hold a message until it is due"


class PreviewEntry(NamedTuple):
    """Where messages would go. `level` is the delay ladder's; None: delivered at once. `problem` is
    why they would stay; None: they would go. `destination` None is the endpoint's own queue.
    """

    destination: str | None
    level: int | None = None
    problem: str | None = None


class _RollBackError(Exception):
    """Rolls a claim back."""


def count_destinations(
    context: SweepContext, reach: Callable[[Horizon], Horizon]
) -> Counter[PreviewEntry]:
    """Count how many messages would go where. Rows that others have locked are not counted."""
    with context.store.open_driver() as session:
        session.check()
        run = session.open_sweep(reach(session.horizon()), prunes=False)
        try:
            plan = session.plan(run.horizon, Slicing(1))
            found: Counter[PreviewEntry] = Counter()
            for number in range(len(plan.planned)):
                keys = read_claim_keys(session.claim_keys(plan, number))
                batches = context.limits.batches(keys.keys, keys.sizes)
                found += count_batches(context.store, context.queue, run, batches)
            return found
        finally:
            # It did nothing, so the ledger needs no row of it.
            session.close_sweep(run.sweep_id, abandoned=False, remaining=0)
            session.delete_settled(run.sweep_id)


def count_batches(
    swept: Store, queues: Queue, run: SweepRun, batches: Iterable[Sequence[str]]
) -> Counter[PreviewEntry]:
    """Count where the messages that these batches of claim keys lead to would go."""
    found: Counter[PreviewEntry] = Counter()
    with swept.open_task() as store, queues.open(store) as queue:
        lookup = _DestinationLookup(queue)
        # Where claim keys are Dues, the next claim would otherwise find the same messages.
        counted: dict[str, set[str]] = {}
        store.leave_alone(counted)
        for batch in batches:
            left: Sequence[str] = batch
            while left:
                claim = _read_claim(store, run, left, counted)
                clock = StoreClock(claim.server_us, Clock())
                found.update(lookup.entry(message, clock) for message in claim.messages)
                left = claim.unread
    return found


def _read_claim(
    store: TaskSession, run: SweepRun, claim_keys: Sequence[str], counted: dict[str, set[str]]
) -> Claim:
    with suppress(_RollBackError), store.transaction():
        claim = store.claim(run, claim_keys)
        for message in claim.messages:
            counted.setdefault(store.claim_key(message), set()).add(message.key)
        raise _RollBackError
    return claim


class _DestinationLookup:
    """Says where a message would go; asks a queue once for each destination."""

    def __init__(self, queue: QueueSession) -> None:
        self._queue = queue
        self._known: dict[str | None, int | str] = {}

    def entry(self, message: Message, clock: StoreClock) -> PreviewEntry:
        """Where the message would go now."""
        if isinstance(message.headers, MessageError):
            return PreviewEntry(None, problem=str(message.headers))
        address = message.destination
        if address not in self._known:
            self._known[address] = self._longest_or_problem(address)
        known = self._known[address]
        seconds = clock.seconds_until(message)
        if isinstance(known, str):
            return PreviewEntry(address, problem=known)
        if not seconds:
            return PreviewEntry(address)
        if seconds > known:
            return PreviewEntry(address, problem=_TOO_LATE if known else _HOLDS_NOTHING)
        return PreviewEntry(address, delay_level(seconds))

    def _longest_or_problem(self, address: str | None) -> int | str:
        try:
            return self._queue.longest_delay(self._queue.resolve(address))
        except (DestinationError, MessageError) as error:
            return str(error)
