"""How many messages a second a destination may get, and which of a slice's messages may go now.

Without I/O: the store counts what all slices and sweeps have reserved (`stores/steering.py`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from duesweep.core.clock import Clock
from duesweep.core.destination_breakers import Address
from duesweep.core.patterns import fits_destination

# What is reserved reaches the queue a little earlier or later than planned. So less than the limit
# is reserved, and no second has more.
_SHARE_RESERVED = 0.94
# How long the messages of one reservation take at the limit: short, so that slices take turns.
_RESERVED_SECONDS = 0.04
# A reservation that is used later than this would add to the next second's. What is reserved and
# what is so late add up to less than the limit.
_LONGEST_LATE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `per_second` messages a second, for all destinations that fit `pattern` together."""

    pattern: str
    per_second: float

    @property
    def seconds_each(self) -> float:
        """Seconds of the limit that one message takes up."""
        return 1 / (self.per_second * _SHARE_RESERVED)

    @property
    def at_once(self) -> int:
        """How many messages are reserved at once."""
        return max(1, int(self.per_second * _RESERVED_SECONDS))


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits of a configuration; the first that fits a destination counts. `own_name` is the
    endpoint's, for messages to its own queue.
    """

    limits: tuple[RateLimit, ...] = ()
    own_name: str = ""

    def of(self, address: Address) -> RateLimit | None:
        """The limit of a destination; None: it has none."""
        name = self.own_name if address is None else address
        return next((each for each in self.limits if fits_destination(name, each.pattern)), None)


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
