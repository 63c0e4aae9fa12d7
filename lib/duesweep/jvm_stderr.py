"""Removes from the JVM's stderr the warnings that it prints at every start."""

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# Spark adds the vector module to every JVM. The JVM warns about it, and no option stops that. Cron
# would mail the warning.
_NOISE = re.compile(
    rb"WARNING: Using incubator modules: "
    rb"|(NOTE: )?Picked up (JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS|_JAVA_OPTIONS): "
)


@contextmanager
def filter_stderr() -> Iterator[None]:
    """Filter the stderr of processes started in the block, as long as this process lives."""
    sys.stderr.flush()
    own = os.dup(2)
    read_end, write_end = os.pipe()
    os.dup2(write_end, 2)
    os.close(write_end)
    threading.Thread(target=_forward, args=(read_end, own), daemon=True).start()
    try:
        yield
    finally:
        os.dup2(own, 2)


def _forward(read_end: int, own: int) -> None:
    with open(read_end, "rb") as lines, suppress(OSError):
        for line in lines:
            if not _NOISE.match(line):
                os.write(own, line)
    os.close(own)
