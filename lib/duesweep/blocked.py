"""The messages of a slice that are left alone: their destination takes nothing now, they are not
due yet, or they have failed.

What waits for a destination is claimed again within the slice, as soon as its breaker allows it.
Only keys are kept, as in the slice's plan.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from duesweep.core.breaker_report import BreakerReport, report_of
from duesweep.core.destination_breakers import Address, DestinationBreakers
from duesweep.core.message import Message
from duesweep.core.policy import BatchLimits
from duesweep.stores.base import TaskSession
from duesweep.stores.values import Excluded

# To try a destination takes one message. More are claimed, because others may have taken the first.
_CLAIMED_TO_TRY = 100

# Where a message goes, and what finds it again.
Blocked = tuple[Address, Excluded]


class BlockedMessages:
    """Keeps what waits for each destination, and excludes from claims what is left alone."""

    def __init__(self, breakers: DestinationBreakers, limits: BatchLimits) -> None:
        self._breakers = breakers
        self._limits = limits
        self._waiting: dict[Address, list[Excluded]] = {}
        self._others: list[Excluded] = []

    @property
    def left(self) -> int:
        """How many messages wait for their destination."""
        return sum(map(len, self._waiting.values()))

    def reports(self, own_queue: str) -> Iterator[BreakerReport]:
        """What is to be told of each destination that took nothing for some time."""
        now = datetime.now(UTC)
        for address, breaker in self._breakers.opened().items():
            name = own_queue if address is None else address
            yield report_of(name, breaker, len(self._waiting.get(address, ())), now)

    @property
    def destinations(self) -> Collection[Address]:
        """The destinations that messages wait for, now and later."""
        return self._waiting.keys()

    def exclude_all(self, store: TaskSession) -> None:
        """Exclude everything in a new session."""
        store.exclude([*self._others, *(one for each in self._waiting.values() for one in each)])

    def add(
        self, store: TaskSession, blocked: Iterable[Blocked], others: Sequence[Excluded]
    ) -> None:
        """Leave the messages of a batch alone: the `blocked` ones until their destination takes
        messages again, the others for the whole slice.
        """
        for address, one in blocked:
            self._waiting.setdefault(address, []).append(one)
            store.exclude([one])
        self._others += others
        store.exclude(others)

    def take(self, store: TaskSession, address: Address) -> Sequence[str]:
        """The claim keys of messages that wait for a destination, for one batch."""
        limits = self._limits
        if not self._breakers.takes(address):
            limits = replace(limits, rows=min(limits.rows, _CLAIMED_TO_TRY))
        waiting = self._waiting[address]
        first = waiting[: limits.rows]
        batch = next(limits.batches(first, [one.size for one in first]))
        del waiting[: len(batch)]
        if not waiting:
            del self._waiting[address]
        store.include(batch)
        return [one.claim_key for one in batch]


def excluded(store: TaskSession, messages: Iterable[Message]) -> Iterator[Excluded]:
    """What finds claimed messages again, and their sizes."""
    for message in messages:
        size = 2 * len(message.headers_text) + message.body_bytes
        yield Excluded(store.claim_key(message), message.key, size)
