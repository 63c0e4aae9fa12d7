"""Locks on files, which end with their process."""

import fcntl
import os
from pathlib import Path
from typing import IO, Any, BinaryIO


def open_lock(path: Path, mode: int = 0o666) -> BinaryIO:
    """The file of a lock, open for its holder's name; it is made if it is missing.

    In a folder that several users share, another one can put a link there. It is not followed, and
    no file is emptied. Raises `OSError`.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, mode), "a+b", buffering=0)


def try_lock(file: IO[Any]) -> bool:
    """Lock an open file until it is closed. False, at once: another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
