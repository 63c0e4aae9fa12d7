"""What SIGINT and SIGTERM do to a command."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from duesweep.stop import Stop

_STOPPING = b"duesweep: stopping after the batches in hand; a second signal stops at once, and %b\n"
NEXT_SWEEP_CONTINUES = "the next sweep continues"
DONE_STAYS_DONE = "what is done stays done"
# Ctrl-C goes to all processes of a terminal, and the one that started this may pass it on besides.
_ONE_SIGNAL_SECONDS = 0.3


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


@contextmanager
def stop_on_signals(stop: Stop, then: str = NEXT_SWEEP_CONTINUES) -> Iterator[None]:
    """At the first SIGINT or SIGTERM, ask for a stop, and say what is true `then`. A later one does
    what it would do without this, and so does the first one if a stop is not possible. Signals that
    the process ignores stay ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # None: a handler that was not set from Python, and cannot be set again from here.
    signals = (signal.SIGINT, signal.SIGTERM)
    handlers = {each: signal.getsignal(each) or signal.SIG_DFL for each in signals}
    heeded = {each: handler for each, handler in handlers.items() if handler != signal.SIG_IGN}
    hook = sys.unraisablehook
    first: float | None = None

    def heed(number: int, _: object) -> None:
        nonlocal first
        now = time.monotonic()
        if not stop.is_possible or (first is not None and now - first > _ONE_SIGNAL_SECONDS):
            signal.signal(number, heeded[signal.Signals(number)])
            # What the signal interrupts in a driver would complain about that on stderr.
            sys.unraisablehook = lambda _: None
            signal.raise_signal(number)
        elif first is None:
            first = now
            stop.ask()
            # Not `print`, which may be what the signal interrupted.
            with suppress(OSError):
                os.write(2, _STOPPING % then.encode())

    for each in heeded:
        signal.signal(each, heed)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for each, handler in heeded.items():
            signal.signal(each, handler)


@contextmanager
def note_sighup() -> Iterator[Callable[[], bool]]:
    """Yields what says whether SIGHUP has arrived since it was asked last. A process that ignores
    SIGHUP, as after `nohup`, goes on ignoring it.
    """
    arrived = threading.Event()

    def asked() -> bool:
        found = arrived.is_set()
        arrived.clear()
        return found

    is_ours = threading.current_thread() is threading.main_thread()
    previous = signal.getsignal(signal.SIGHUP)
    if not is_ours or previous == signal.SIG_IGN:
        yield asked
        return
    signal.signal(signal.SIGHUP, lambda *_: arrived.set())
    try:
        yield asked
    finally:
        signal.signal(signal.SIGHUP, previous or signal.SIG_DFL)


def _raise(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise TerminatedError
