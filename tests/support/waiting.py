"""Waiting for something, with a deadline instead of a guess."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_POLL_SECONDS = 0.01
# A machine with much to do is late; a wait without end is later.
_LATE_SECONDS = 60.0


def until(condition: Callable[[], object], seconds: float = 180) -> None:
    """Return as soon as `condition` holds; fail when that takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(_POLL_SECONDS)


@contextmanager
def in_time(seconds: float = _LATE_SECONDS) -> Iterator[None]:
    """The block has to end within `seconds`."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds, "it took too long"
