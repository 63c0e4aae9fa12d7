"""A process that has few file descriptors left."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Within the block, this process can open `count` more files and connections."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(int(each.name) for each in Path("/proc/self/fd").iterdir()) + 32
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
    held: list[int] = []
    try:
        while True:
            try:
                held.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        for _ in range(count):
            os.close(held.pop())
        yield
    finally:
        for one in held:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
