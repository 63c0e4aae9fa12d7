"""SIGTERM as an exception, so that a command ends as it should."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TerminatedError(BaseException):
    """Somebody asks this process to end; as with Ctrl-C, nothing on the way is to catch it."""


@contextmanager
def terminable() -> Iterator[None]:
    """Raise `TerminatedError` in the main thread at the first SIGTERM; a second one ends it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _raise(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise TerminatedError
