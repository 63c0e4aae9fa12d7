"""Waiting for something, with a deadline instead of a guess."""

import time
from collections.abc import Callable

_POLL_SECONDS = 0.01


def until(condition: Callable[[], object], seconds: float = 180) -> None:
    """Return as soon as `condition` is true; fail when that takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(_POLL_SECONDS)
