"""How many messages a second a destination may get, and which of a slice's messages may go now.

Without I/O: the store counts what all slices and sweeps have reserved (`TaskSession.reserve`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from duesweep.core.account import SERVICES, BreakerReport
from duesweep.core.message import Address
from duesweep.core.policy import BatchLimits, RateLimit, RateLimits
from duesweep.core.world import Clock
from duesweep.stores.base import TaskSession
from duesweep.sweep.breakers import CircuitBreaker, DestinationBreakers, report_of
from duesweep.sweep.job import Job

# A reservation that is used later than this would add to the next second's. What is reserved and
# what is so late add up to less than the limit.
_LONGEST_LATE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Reservation:
    """`messages` messages may go to `address` from `at` on, by the slice's clock."""

    address: Address
    messages: int
    at: float


class SliceLimits:
    """The limits as one slice keeps them: at most one reservation for each at any time."""

    def __init__(self, limits: RateLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._known: dict[Address, RateLimit | None] = {}
        self._reserved: dict[RateLimit, Reservation] = {}
        # The limits whose last reservation was used by nobody, because its time was over.
        self._dropped: set[RateLimit] = set()
        # The destination whose reserved messages are on their way; empty if there is none.
        self._passing: tuple[Address, ...] = ()

    def has(self, address: Address) -> bool:
        """Whether a destination has a limit."""
        return self._of(address) is not None

    def holds(self, address: Address) -> bool:
        """Whether messages for a destination have to wait for a reservation."""
        return bool(self._limits.limits) and self.has(address) and address not in self._passing

    def reserve(
        self, waiting: Mapping[Address, int], ask: Callable[[RateLimit, int], float]
    ) -> None:
        """Reserve for destinations with so many messages waiting. `ask` reserves that many at the
        store, and returns after how many seconds they may go.
        """
        for address, count in waiting.items():
            limit = self._of(address)
            if limit is not None and limit not in self._reserved:
                messages = min(count, limit.at_once)
                seconds = ask(limit, messages)
                # By the time after the answer, for which the slice may have waited.
                at = self._clock.seconds() + seconds
                self._reserved[limit] = Reservation(address, messages, at)

    def due(self, waiting: Collection[Address]) -> list[Reservation]:
        """The reservations whose time has come, which uses them up; without those for destinations
        that nothing waits for any more, and those whose time is over. No two of a limit that follow
        each other are dropped for that: where all comes late, messages go on nevertheless.
        """
        now = self._clock.seconds()
        due = {limit: each for limit, each in self._reserved.items() if each.at <= now}
        for limit in due:
            del self._reserved[limit]
        late = {limit for limit, each in due.items() if now - each.at > _LONGEST_LATE_SECONDS}
        dropped = late - self._dropped
        self._dropped = (self._dropped - due.keys()) | dropped
        return [
            each for limit, each in due.items() if each.address in waiting and limit not in dropped
        ]

    @property
    def seconds_to_next(self) -> float | None:
        """After how many seconds the next reservation may be used; None: there is none."""
        first = min((each.at for each in self._reserved.values()), default=None)
        return None if first is None else max(0.0, first - self._clock.seconds())

    @contextmanager
    def passing(self, address: Address) -> Iterator[None]:
        """In the block, messages for a destination go although it has a limit."""
        self._passing = (address,)
        try:
            yield
        finally:
            self._passing = ()

    def _of(self, address: Address) -> RateLimit | None:
        if address not in self._known:
            self._known[address] = self._limits.of(address)
        return self._known[address]


# To try a destination takes one message. More are claimed, because others may have taken the first.
_CLAIMED_TO_TRY = 100


class Waiting(NamedTuple):
    """A message that is left alone for now: its claim key, its key, and the size of its headers and
    body in bytes.
    """

    claim_key: str
    key: str
    size: int


class BlockedMessages:
    """Keeps what waits for each destination, and says what claims leave alone: `left_alone`, the
    keys of messages by their claim keys, where these are not keys.
    """

    def __init__(
        self, breakers: DestinationBreakers, rates: SliceLimits, limits: BatchLimits
    ) -> None:
        self._breakers = breakers
        self._rates = rates
        self._limits = limits
        self._waiting: dict[Address, list[Waiting]] = {}
        self.left_alone: dict[str, set[str]] = {}

    @property
    def left(self) -> int:
        """How many messages wait for their destination."""
        return sum(map(len, self._waiting.values()))

    def reports(
        self, own_queue: str, services: CircuitBreaker, now: datetime
    ) -> Iterator[BreakerReport]:
        """What is to be told of each destination that took nothing for some time, and of the
        services.
        """
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

    def add(self, blocked: Sequence[tuple[Address, Waiting]], others: Sequence[Waiting]) -> None:
        """Leave messages of a batch alone: `blocked` ones until their destination may get messages
        again, each with its destination; `others` for the whole slice.
        """
        for address, one in blocked:
            self._waiting.setdefault(address, []).append(one)
            self._leave(one)
        for one in others:
            self._leave(one)

    def _leave(self, one: Waiting) -> None:
        if one.claim_key != one.key:
            self.left_alone.setdefault(one.claim_key, set()).add(one.key)

    def take(self, address: Address, most: int | None = None) -> Sequence[str]:
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
        for one in batch:
            self.left_alone.get(one.claim_key, set()).discard(one.key)
        return [one.claim_key for one in batch]


# How often a slice that waits looks whether the sweep is to stop.
_STOP_POLL_SECONDS = 1.0
# A rest that rounding leaves would not move a clock.
_LEAST_WAIT_SECONDS = 0.001
# Runs the batch of these claim keys, and notes what became of it. Returns how many were claimed.
Run = Callable[[Sequence[str]], int]


class Turns:
    """The turns of one slice's destinations. `blocked` has what waits for them."""

    def __init__(
        self,
        job: Job,
        breakers: DestinationBreakers,
        limits: SliceLimits,
        blocked: BlockedMessages,
    ) -> None:
        self._job = job
        self._breakers = breakers
        self._limits = limits
        self._blocked = blocked

    @property
    def seconds_to_next(self) -> float | None:
        """After how many seconds the next messages may go on; None: none ever may."""
        times = (
            self._breakers.seconds_to_try(self._blocked.failing()),
            self._limits.seconds_to_next,
        )
        return min((seconds for seconds in times if seconds is not None), default=None)

    def wait(self, store: TaskSession, seconds: float) -> None:
        """Let so much time pass; raise if the sweep is to stop meanwhile, or is closed."""
        clock = self._job.context.world.clock
        end = clock.seconds() + max(seconds, _LEAST_WAIT_SECONDS)
        while end > clock.seconds():
            # Before the rest, not after it: what may go on at the end of it goes at once.
            with store.transaction():
                store.claim(self._job.run, ())
            self._job.progressed()
            if (left := end - clock.seconds()) > 0:
                clock.sleep(min(max(left, _LEAST_WAIT_SECONDS), _STOP_POLL_SECONDS))

    def try_destinations(self, run: Run) -> None:
        """Run what waits for destinations that can be tried, or used, again."""
        for address in self._breakers.due(self._blocked.failing):
            with self._breakers.trying(address):
                run(self._blocked.take(address))

    def go_on(self, store: TaskSession, run: Run) -> None:
        """Run all that may go on now, what waits for a limit too. Not between other batches: they
        take longer than a reservation may wait.
        """
        self.try_destinations(run)
        self._reserve(store)
        for reservation in self._limits.due(self._blocked.limited()):
            with self._limits.passing(reservation.address):
                self._use(reservation, run)
        self._reserve(store)

    def _use(self, reservation: Reservation, run: Run) -> None:
        """Claim as many messages as are reserved. If others have taken some: the next ones."""
        address, left = reservation.address, reservation.messages
        while left > 0 and address in self._blocked.limited():
            left -= run(self._blocked.take(address, left))

    def _reserve(self, store: TaskSession) -> None:
        waiting = self._blocked.limited()
        if waiting:
            self._limits.reserve(waiting, store.reserve)
