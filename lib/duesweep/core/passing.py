"""The passing line: the step or the count of a long command. It is on stderr, on a terminal only,
and goes before anything else is printed.
"""

import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from duesweep.core.errors import UnprintedError, make_printable

# A command that is done sooner shows no line.
FIRST_SECONDS = 1.0
EACH_SECONDS = 0.5
_CLEAR = "\r\x1b[K"

_guard = threading.RLock()
_is_shown = threading.Event()


@contextmanager
def printing() -> Iterator[None]:
    """Within the block nothing of the line is on the terminal."""
    with _guard:
        if _is_shown.is_set():
            _is_shown.clear()
            print(_CLEAR, end="", file=sys.stderr, flush=True)
        yield


@contextmanager
def passing_line(text: Callable[[], str]) -> Iterator[None]:
    """Show `text()` twice a second until the block ends; an empty one is not shown."""
    stderr = sys.stderr
    if not stderr.isatty():
        yield
        return
    end = threading.Event()

    def show() -> None:
        seconds = FIRST_SECONDS
        while not end.wait(seconds):
            seconds = EACH_SECONDS
            # A line that is wrapped would not go as a whole.
            line = make_printable(text())[: shutil.get_terminal_size().columns - 1]
            # A reader that is gone ends the command, not the line.
            with _guard, suppress(OSError, UnprintedError, ValueError):
                if line and not end.is_set():
                    _is_shown.set()
                    # The line comes after all that was printed before it.
                    sys.stdout.flush()
                    print(f"{_CLEAR}{line}", end="", file=stderr, flush=True)

    shower = threading.Thread(target=show, name="duesweep passing line", daemon=True)
    shower.start()
    try:
        yield
    finally:
        end.set()
        shower.join()
        with printing():
            pass
