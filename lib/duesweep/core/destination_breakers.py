"""The circuit breakers of a slice's destinations. Without I/O."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from duesweep.core.breaker import BreakerLimits, BreakerState, CircuitBreaker
from duesweep.core.clock import Clock

# None is the endpoint's own queue.
Address = str | None


class DestinationBreakers:
    """One breaker for each destination that has failed in this slice.

    A destination that failed is tried again with one message. All destinations together are tried
    in vain as often as one may be.
    """

    def __init__(self, limits: BreakerLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._breakers: dict[Address, CircuitBreaker] = {}
        self._try_at = 0.0
        # Why a destination cannot defer messages. It still takes what is due.
        self.cannot_defer: dict[Address, str] = {}
        # The destination that is being tried; empty if none is.
        self._tried: tuple[Address, ...] = ()

    @property
    def all_closed(self) -> bool:
        """Whether all destinations take messages, as far as is known."""
        return all(breaker.is_closed for breaker in self._breakers.values())

    @property
    def reasons(self) -> set[str]:
        """Why destinations take nothing now, or cannot defer messages."""
        closed = {one.reason for one in self._breakers.values() if not one.is_closed}
        return closed | set(self.cannot_defer.values())

    def takes(self, address: Address) -> bool:
        """Whether messages may go to a destination."""
        return self.state(address) is BreakerState.CLOSED

    def is_tried(self, address: Address) -> bool:
        """Whether a destination that failed is being tried, with one message."""
        return address in self._tried and not self.takes(address)

    def is_due(self, address: Address) -> bool:
        """Whether a destination can be used, or tried, now."""
        return not self._seconds_to_try(address)

    def state(self, address: Address) -> BreakerState:
        """The state of a destination's breaker."""
        breaker = self._breakers.get(address)
        return BreakerState.CLOSED if breaker is None else breaker.state

    def opened(self) -> dict[Address, CircuitBreaker]:
        """The breakers that are open, or were."""
        return dict(self._breakers)

    def fail(
        self, address: Address, reason: str, *, took_seconds: float, is_lasting: bool = False
    ) -> None:
        """Note that a destination took nothing, which was found out within so many seconds.
        `is_lasting`: the fault does not pass by itself.
        """
        if address not in self._breakers:
            # What takes one message and refuses the many that follow has not recovered.
            breaker = CircuitBreaker(self._limits, self._clock, forgives_at_once=False)
            self._breakers[address] = breaker
        self._breakers[address].fail(reason, took_seconds=took_seconds, is_lasting=is_lasting)
        if self.is_tried(address) and self.state(address) is BreakerState.OPEN:
            self._try_at = self._clock.seconds() + self._limits.pause_seconds(took_seconds)

    def succeed(self, address: Address) -> None:
        """Note that a destination took messages."""
        if address in self._breakers:
            self._breakers[address].succeed()

    @contextmanager
    def trying(self, address: Address) -> Iterator[None]:
        """In the block, one message may go to a destination that takes nothing."""
        self._tried = (address,)
        try:
            yield
        finally:
            self._tried = ()

    def due(self, waiting: Callable[[], Collection[Address]]) -> Iterator[Address]:
        """Those of the destinations `waiting` that can be used or tried now, one at a time. What
        became of one is to be noted before the next is asked for; `waiting` is called each time.
        """
        while addresses := waiting():
            address = min(addresses, key=self._seconds_to_try)
            if not self.is_due(address):
                return
            yield address

    def seconds_to_try(self, waiting: Collection[Address]) -> float | None:
        """After how many seconds one of the destinations `waiting` can be tried; None: none can."""
        seconds = min(map(self._seconds_to_try, waiting), default=_NEVER)
        return None if seconds == _NEVER else seconds

    def _seconds_to_try(self, address: Address) -> float:
        match self.state(address):
            case BreakerState.CLOSED:
                return 0.0
            case BreakerState.TRIGGERED:
                return _NEVER
        breaker = self._breakers[address]
        pause = max(0.0, self._try_at - self._clock.seconds())
        return min(max(pause, breaker.seconds_to_try), breaker.seconds_left)


_NEVER = float("inf")
