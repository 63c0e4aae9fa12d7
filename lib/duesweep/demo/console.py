"""Prints the demonstration's steps, and how long each took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


def say(text: str, end: str = "\n") -> None:
    """Print a line at once, also into a pipe."""
    print(text, end=end, flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Print the step before the block, and its seconds after it."""
    say(f"{text} … ", end="")
    started = time.monotonic()
    try:
        yield
    except BaseException:
        say("")
        raise
    say(f"{time.monotonic() - started:.1f} s")
