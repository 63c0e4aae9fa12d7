"""How long to wait for a lock that another process holds."""

import logging
from collections.abc import Callable

from duesweep.core.world import Clock

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_TOLD_AFTER_SECONDS = 2.0


class Patience:
    """Waits `seconds` in all, however many locks share it, and not beyond `is_stopped()`.

    A holder may be frozen, so no wait for a lock is without an end. 0: never waits. A wait of more
    than 2 s is logged.
    """

    def __init__(
        self,
        seconds: float,
        is_stopped: Callable[[], bool] = lambda: False,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or Clock()
        self._left = seconds
        self._waited = 0.0
        self.is_stopped = is_stopped

    def wait(self, holder: Callable[[], str]) -> bool:
        """Wait a moment before the next try. Returns False, at once, if it is time to give up.
        `holder` says who holds the lock.
        """
        if self._left <= 0 or self.is_stopped():
            return False
        seconds = min(_POLL_SECONDS, self._left)
        self.clock.sleep(seconds)
        self._left -= seconds
        if self._waited <= _TOLD_AFTER_SECONDS < self._waited + seconds:
            _log.warning("Waiting for a lock: %s", holder())
        self._waited += seconds
        return True


NO_PATIENCE = Patience(0)
