"""Python's garbage collector, while a slice is dispatched."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# A batch makes thousands of tuples and dictionaries, and none of them in a circle. At Python's own
# 700, looking for circles took an eighth of the task's CPU.
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
