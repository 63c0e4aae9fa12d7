"""Circuit breakers: when to leave alone what has failed, and when to try it again. Without I/O.

closed → open at a failure → tried again after a pause → closed at a success. A breaker that has
been open for the time to trigger, or whose fault does not pass by itself, is not tried again.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from duesweep.core.account import BreakerReport, BreakerState
from duesweep.core.message import Address
from duesweep.core.policy import BreakerLimits
from duesweep.core.world import Clock


class CircuitBreaker:
    """The breaker of one service or one destination, within one slice.

    A failure after a success begins a new time to trigger. Unless `forgives_at_once`, it goes on
    with the time before if it worked for a shorter time than it had failed.
    """

    def __init__(
        self, limits: BreakerLimits, clock: Clock, *, forgives_at_once: bool = True
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._forgives_at_once = forgives_at_once
        self._opened_at: float | None = None
        self._closed_at: float | None = None
        self._try_at = 0.0
        self._is_lasting = False
        self._reason = ""

    @property
    def state(self) -> BreakerState:
        """Its state now."""
        if self._opened_at is None or self._closed_at is not None:
            return BreakerState.CLOSED
        is_over = self._clock.seconds() >= self._triggers_at
        return BreakerState.TRIGGERED if is_over or self._is_lasting else BreakerState.OPEN

    @property
    def is_closed(self) -> bool:
        """Whether it is in use."""
        return self.state is BreakerState.CLOSED

    @property
    def reason(self) -> str:
        """Why it opened, or could not be closed, last; empty if it never opened."""
        return self._reason

    @property
    def open_seconds(self) -> float:
        """For how long it has been open, or was open the last time; 0 if it never was."""
        if self._opened_at is None:
            return 0.0
        until = self._clock.seconds() if self._closed_at is None else self._closed_at
        return until - self._opened_at

    @property
    def opened_seconds_ago(self) -> float:
        """How long ago it opened the last time; 0 if it never did."""
        return 0.0 if self._opened_at is None else self._clock.seconds() - self._opened_at

    @property
    def seconds_to_try(self) -> float:
        """How long to leave it alone from now on, if it is open."""
        return max(0.0, self._try_at - self._clock.seconds())

    def fail(self, reason: str, *, took_seconds: float = 0.0, is_lasting: bool = False) -> None:
        """Note a failure that took so long. `is_lasting`: the fault does not pass by itself."""
        now = self._clock.seconds()
        if self.is_closed:
            # The time in which it worked does not count.
            failed_before = self.open_seconds if self._counts_on else 0.0
            self._opened_at = now - failed_before
        self._closed_at = None
        self._reason = reason
        self._is_lasting = is_lasting
        # Nobody waits longer than until it is triggered.
        pause_seconds = self._limits.pause_seconds(took_seconds)
        self._try_at = min(now + pause_seconds, self._triggers_at)

    @property
    def _counts_on(self) -> bool:
        """Whether a failure goes on with the time before: it worked for a shorter time than it had
        failed.
        """
        if self._forgives_at_once or self._closed_at is None:
            return False
        return self._clock.seconds() - self._closed_at < self.open_seconds

    @property
    def seconds_left(self) -> float:
        """How long it is until it is triggered, if it is open."""
        return max(0.0, self._triggers_at - self._clock.seconds())

    @property
    def _triggers_at(self) -> float:
        """When it is triggered. An instant, because differences are rounded: what is open has to be
        tried later than now.
        """
        opened_at = self._clock.seconds() if self._opened_at is None else self._opened_at
        return opened_at + self._limits.trigger_seconds

    def succeed(self) -> None:
        """Note a success."""
        if not self.is_closed:
            self._closed_at = self._clock.seconds()
            self._is_lasting = False


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


def report_of(name: str, breaker: CircuitBreaker, left: int, now: datetime) -> BreakerReport:
    """The report of a breaker that opened. `now` is this machine's time."""
    opened = now - timedelta(seconds=breaker.opened_seconds_ago)
    return BreakerReport(
        name,
        breaker.state.value,
        opened.isoformat(timespec="seconds"),
        round(breaker.open_seconds, 1),
        left,
        breaker.reason,
    )
