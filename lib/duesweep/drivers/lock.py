"""Locks on files, which end with their process."""

import fcntl
from typing import IO, Any


def try_lock(file: IO[Any]) -> bool:
    """Lock an open file until it is closed. False, at once: another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
