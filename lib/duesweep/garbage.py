"""Python's garbage collector, while a slice is dispatched."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# A batch makes thousands of tuples and dictionaries. At Python's own 700, looking for circles among
# them, again and again, took an eighth of a task's CPU.
_NEW_OBJECTS = 100_000


@contextmanager
def collect_rarely() -> Iterator[None]:
    """In the block, the collector runs once for so many new objects."""
    before = gc.get_threshold()
    gc.set_threshold(max(_NEW_OBJECTS, before[0]) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def collect_new() -> None:
    """Collect among the objects that are new since the last batches. An error and the frames of its
    traceback are a circle that holds its batch's bodies.
    """
    gc.collect(1)
