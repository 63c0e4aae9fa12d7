"""What the demonstration says: each step before it is done, and how long it took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


def say(text: str, end: str = "\n") -> None:
    """Print at once, also into a pipe."""
    print(text, end=end, flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Say what begins, then the seconds that it took."""
    say(f"{text} … ", end="")
    started = time.monotonic()
    try:
        yield
    except BaseException:
        say("")
        raise
    say(f"{time.monotonic() - started:.1f} s")
