"""This process, as other processes know it; whether another one of this machine is gone; and locks
on files, which end with their process.
"""

import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

_PROC = Path("/proc")
# The state, and when it was started, behind a process's name in its `stat`.
_STATE, _STARTED = 0, 19
_ENDED = {"Z", "X"}


def process_name() -> str:
    """Such as "7 on web1"."""
    return f"{os.getpid()} on {socket.gethostname()}"


def process_mark() -> str:
    """What tells this process from all others, also of other machines and containers. Empty where
    the system does not say it: only Linux does.
    """
    with suppress(OSError):
        return f"{_namespace()} {os.getpid()} {_stat(os.getpid())[_STARTED]}"
    return ""


def is_gone(mark: str) -> bool:
    """Whether a process with this mark was one of this machine, and has ended. It may have ended
    although this says no.
    """
    namespace, _, process = mark.rpartition(" ")
    namespace, _, pid = namespace.rpartition(" ")
    with suppress(OSError):
        if not namespace or namespace != _namespace():
            return False
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        found = _stat(int(pid))
        return found[_STARTED] != process or found[_STATE] in _ENDED
    return False


def _namespace() -> str:
    """The start of the machine, and the container's own numbers of processes."""
    boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
    return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"


def _stat(pid: int) -> list[str]:
    # A name may have spaces and brackets.
    return (_PROC / f"{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()


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
