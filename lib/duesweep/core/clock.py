"""Measures time inside one process, for limits on how long something may take.

This clock never decides whether a message is due. The store's server decides that.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since some fixed moment; never goes back."""

    def seconds(self) -> float:
        """Monotonic seconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let so much time pass."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def seconds(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let so much time pass."""
        time.sleep(seconds)


class SettableClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    def seconds(self) -> float:
        """Monotonic seconds."""
        return self._seconds

    def sleep(self, seconds: float) -> None:
        """Move forward."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move forward."""
        self._seconds += seconds
