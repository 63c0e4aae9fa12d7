"""The messages of a slice that are left alone: their destination takes nothing now or has a limit,
they are paused or not due yet, or they have failed.

What waits for a destination is claimed again within the slice, as soon as its breaker allows it.
Only keys are kept, as in the slice's plan.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from duesweep.core.breaker import CircuitBreaker
from duesweep.core.breaker_report import SERVICES, BreakerReport, report_of
from duesweep.core.destination_breakers import Address, DestinationBreakers
from duesweep.core.message import Message
from duesweep.core.outcome import Outcomes
from duesweep.core.policy import BatchLimits
from duesweep.core.rate_limits import SliceLimits
from duesweep.delivery_result import DeliveryResult
from duesweep.stores.base import TaskSession
from duesweep.stores.values import Excluded

# To try a destination takes one message. More are claimed, because others may have taken the first.
_CLAIMED_TO_TRY = 100


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """Messages of a batch: `blocked` ones wait until their destination may get messages again, each
    with its destination; `others` are left alone for the whole slice.
    """

    blocked: Sequence[tuple[Address, Excluded]]
    others: Sequence[Excluded]


class BlockedMessages:
    """Keeps what waits for each destination, and excludes from claims what is left alone."""

    def __init__(
        self, breakers: DestinationBreakers, rates: SliceLimits, limits: BatchLimits
    ) -> None:
        self._breakers = breakers
        self._rates = rates
        self._limits = limits
        self._waiting: dict[Address, list[Excluded]] = {}
        self._others: list[Excluded] = []

    @property
    def left(self) -> int:
        """How many messages wait for their destination."""
        return sum(map(len, self._waiting.values()))

    def reports(self, own_queue: str, services: CircuitBreaker) -> Iterator[BreakerReport]:
        """What is to be told of each destination that took nothing for some time, and of the
        services.
        """
        now = datetime.now(UTC)
        for address, breaker in self._breakers.opened().items():
            name = own_queue if address is None else address
            yield report_of(name, breaker, len(self._waiting.get(address, ())), now)
        if services.reason:
            yield report_of(SERVICES, services, 0, now)

    def failing(self) -> Collection[Address]:
        """The destinations that messages wait for because they took nothing."""
        return [address for address in self._waiting if not self._is_limited(address)]

    def limited(self) -> dict[Address, int]:
        """The destinations that messages wait for because of a limit, and how many wait."""
        return {
            address: len(waiting)
            for address, waiting in self._waiting.items()
            if self._is_limited(address)
        }

    def _is_limited(self, address: Address) -> bool:
        return self._rates.has(address) and self._breakers.takes(address)

    def exclude_all(self, store: TaskSession) -> None:
        """Exclude everything in a new session."""
        store.exclude([*self._others, *(one for each in self._waiting.values() for one in each)])

    def add(self, store: TaskSession, left_alone: LeftAlone) -> None:
        """Leave messages of a batch alone."""
        for address, one in left_alone.blocked:
            self._waiting.setdefault(address, []).append(one)
        self._others += left_alone.others
        store.exclude([*(one for _, one in left_alone.blocked), *left_alone.others])

    def take(self, store: TaskSession, address: Address, most: int | None = None) -> Sequence[str]:
        """The claim keys of messages that wait for a destination, for one batch of at most `most`
        messages.
        """
        limits = self._limits
        if most is not None:
            limits = replace(limits, rows=min(limits.rows, most))
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


def find_left_alone(store: TaskSession, result: DeliveryResult, outcomes: Outcomes) -> LeftAlone:
    """Which messages of a batch are left alone, in the transaction that claimed them."""
    failed = [outcome.message for outcome in outcomes.failed]
    stay = (*result.held, *result.early, *result.undeferred, *failed)
    return LeftAlone(
        [(message.destination, _excluded(store, message)) for message in result.blocked],
        [_excluded(store, message) for message in stay],
    )


def _excluded(store: TaskSession, message: Message) -> Excluded:
    size = 2 * len(message.headers_text) + message.body_bytes
    return Excluded(store.claim_key(message), message.key, size)
