"""Circuit breakers: when to leave alone what has failed, and when to try it again. Without I/O.

closed → open at a failure → tried again after a pause → closed at a success. A breaker that has
been open for the time to trigger, or whose fault does not pass by itself, is not tried again.
"""

from dataclasses import dataclass
from enum import StrEnum

from duesweep.core.clock import Clock

# What is tried in vain may take its time, such as the wait for a lock. So much longer is the pause
# after it: a slice spends at most a quarter of its time on what is dead.
PAUSE_PER_TRY = 3.0


class BreakerState(StrEnum):
    """`CLOSED`: in use. `OPEN`: left alone, and tried again after a pause. `TRIGGERED`: left alone
    for the rest of the slice.
    """

    CLOSED = "closed"
    OPEN = "open"
    TRIGGERED = "triggered"


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """`trigger_seconds`: for how long a slice tries again what fails; 0: never again.
    `failures_per_second`: how often it tries in vain at the most.
    """

    trigger_seconds: float = 30.0
    failures_per_second: float = 1.0

    def pause_seconds(self, took_seconds: float) -> float:
        """How long to leave alone what has just failed, after so many seconds."""
        return max(1 / self.failures_per_second, PAUSE_PER_TRY * took_seconds)


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
