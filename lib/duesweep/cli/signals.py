"""SIGTERM as an exception, so that a command cleans up before it ends."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TerminatedError(BaseException):
    """SIGTERM has arrived. Like `KeyboardInterrupt`, it passes `except Exception`."""


@contextmanager
def raise_on_sigterm() -> Iterator[None]:
    """Raise `TerminatedError` in the main thread at the first SIGTERM.

    The second SIGTERM ends the process.
    """
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
