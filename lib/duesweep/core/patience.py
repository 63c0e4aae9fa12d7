"""How long to wait for a lock that another process holds."""

import time
from collections.abc import Callable

_POLL_SECONDS = 0.1


class Patience:
    """Waits `seconds` in all, however many locks share it, and not beyond `is_stopped()`.

    A holder may be frozen, so no wait for a lock is without an end. 0: never waits.
    """

    def __init__(self, seconds: float, is_stopped: Callable[[], bool] = lambda: False) -> None:
        self._left = seconds
        self.is_stopped = is_stopped

    def wait(self) -> bool:
        """Wait a moment before the next try. Returns False, at once, if it is time to give up."""
        if self._left <= 0 or self.is_stopped():
            return False
        seconds = min(_POLL_SECONDS, self._left)
        time.sleep(seconds)
        self._left -= seconds
        return True


NO_PATIENCE = Patience(0)
