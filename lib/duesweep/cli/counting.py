"""A line on the terminal that counts while a command works."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from duesweep.steer import Tally, Work
from duesweep.stores.base import OperatorTask, SweepRun

Tell = Callable[[int], None]
# A command that is done sooner shows none.
_FIRST_SECONDS = 1.0
_EACH_SECONDS = 0.5
_CLEAR_LINE = "\r\x1b[K"


@contextmanager
def counting(what: str) -> Iterator[Tell]:
    """Show how many messages are `what` by now, as in "looked at: 120,000"; the block tells it.

    Only on a terminal, on stderr. At the end nothing of it is left there.
    """
    if not sys.stderr.isatty():
        yield _tell_nobody
        return
    next_at, is_shown = time.monotonic() + _FIRST_SECONDS, False

    def tell(count: int) -> None:
        nonlocal next_at, is_shown
        if time.monotonic() >= next_at:
            next_at, is_shown = time.monotonic() + _EACH_SECONDS, True
            print(f"{_CLEAR_LINE}{what}: {count:,}", end="", file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        if is_shown:
            print(_CLEAR_LINE, end="", file=sys.stderr, flush=True)


def counted(work: Work, tell: Tell) -> Work:
    """The same work, which tells after each batch how many messages it has changed."""

    def telling(session: OperatorTask, run: SweepRun) -> Iterator[Tally]:
        changed = 0
        for tally in work(session, run):
            changed += tally.changed
            tell(changed)
            yield tally

    return telling


def _tell_nobody(_: int) -> None:
    """Nobody looks."""
