"""What SIGINT and SIGTERM do to a command, and SIGHUP to a sweep."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

# Imported by the first line of a command, so it imports nothing that takes time.
if TYPE_CHECKING:
    from duesweep.operations.duesweep import Stop

_STOPPING = b"duesweep: stopping after the current batches; a second signal stops at once, and %b\n"
NEXT_SWEEP_CONTINUES = "the next sweep continues"
CHANGES_STAY = "committed changes stay"
# Ctrl-C goes to all processes of a terminal, and this process's parent may also pass it on.
_ONE_SIGNAL_SECONDS = 0.3
# A signal that came while no error could be raised is raised again after this time.
_AGAIN_SECONDS = 0.01
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

# What `note_signals` has noted.
_noted: list[int] = []


class TerminatedError(BaseException):
    """SIGTERM has arrived. Like `KeyboardInterrupt`, it passes `except Exception`."""


_RAISED = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: TerminatedError}


def note_signals() -> None:
    """Note SIGINT and SIGTERM until `raise_on_signals` raises them: the modules that a command
    imports first take a third of a second. Signals that the process ignores stay ignored.
    """
    if threading.current_thread() is threading.main_thread():
        for each in _heeded():
            signal.signal(each, lambda number, _: _noted.append(number))


@contextmanager
def raise_on_signals() -> Iterator[None]:
    """Raise `TerminatedError` at SIGTERM and `KeyboardInterrupt` at SIGINT in the main thread, but
    not in the middle of an import: it would end as whatever the module makes of the exception. A
    signal whose exception is lost in code that cannot raise one, such as a C extension's, is raised
    again.

    The second SIGTERM ends the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.signal(each, _raise) for each in _heeded()}
    hook = sys.unraisablehook

    def raise_again(lost: "sys.UnraisableHookArgs") -> None:
        for number, raised in _RAISED.items():
            if number in before and lost.exc_type is raised:
                signal.signal(number, _raise)
                _raise_later(number)
                return
        hook(lost)

    sys.unraisablehook = raise_again
    try:
        while _noted:
            signal.raise_signal(_noted.pop(0))
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stop_on_signals(stop: "Stop", then: str = NEXT_SWEEP_CONTINUES) -> Iterator[None]:
    """At the first SIGINT, SIGTERM or SIGHUP, ask for a stop, and print the sentence `then`. A
    later one does the same as without this, and so does the first one if a stop is not possible.
    Signals that the process ignores, as SIGHUP after `nohup`, stay ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (*_SIGNALS, signal.SIGHUP)
    handlers = {each: signal.getsignal(each) or signal.SIG_DFL for each in signals}
    heeded = {each: handler for each, handler in handlers.items() if handler != signal.SIG_IGN}
    hook = sys.unraisablehook
    first: float | None = None

    def heed(number: int, _: object) -> None:
        nonlocal first
        now = time.monotonic()
        if first is not None and now - first > _ONE_SIGNAL_SECONDS:
            signal.signal(number, heeded[signal.Signals(number)])
            # A driver that the signal interrupts would complain about that on stderr.
            sys.unraisablehook = lambda _: None
            signal.raise_signal(number)
        elif first is None:
            first = now
            stop.ask()
            # Not `print`, which the signal may have interrupted.
            with suppress(OSError):
                passing = b"\r\x1b[K" if os.isatty(2) else b""
                os.write(2, passing + _STOPPING % then.encode())

    for each in heeded:
        signal.signal(each, heed)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for each, handler in heeded.items():
            signal.signal(each, handler)


def _heeded() -> list[signal.Signals]:
    # None: a handler that was not set from Python, and cannot be set again from here.
    unheeded = (signal.SIG_IGN, None)
    return [each for each in _SIGNALS if signal.getsignal(each) not in unheeded]


def _raise(number: int, frame: FrameType | None) -> None:
    if _is_importing(frame):
        _raise_later(number)
        return
    if number == signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)
    raise _RAISED[signal.Signals(number)]


def _raise_later(number: int) -> None:
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(number))
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
