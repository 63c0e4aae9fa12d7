"""A ledger's location: a path (with a `/` or a scheme) or a catalog schema."""

import errno
import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from duesweep.core.errors import ConfigError, DuesweepError, LedgerError, LedgerLockedError
from duesweep.core.world import Patience

_LOCK_NAME = ".duesweep.lock"
_LOG_BYTES = 500_000
# These are faults of the storage, not of a setting.
_STORAGE_FAULTS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.ETIMEDOUT),
    *(errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH),
}


def is_path(root: str) -> bool:
    """Whether `root` is a path, and not a catalog schema."""
    return "/" in root or ":" in root


def scheme(root: str) -> str:
    """The scheme of a path; empty for a plain one and for a schema."""
    return urlsplit(root).scheme if is_path(root) else ""


def local_folder(root: str) -> Path | None:
    """The folder on this machine that `root` names; None if it names none."""
    if not is_path(root):
        return None
    parts = urlsplit(root)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return Path(root) if not parts.scheme else None


def table_path(root: str, name: str) -> str:
    """The path of a table under a root that is a path."""
    return f"{root.rstrip('/')}/{name}"


def table_name(root: str, name: str) -> str:
    """The table's name for SQL and `spark.read.table`."""
    if is_path(root):
        return f"delta.{_quote(table_path(root, name))}"
    return f"{schema_name(root)}.{_quote(name)}"


def schema_name(root: str) -> str:
    """The catalog schema for SQL."""
    return ".".join(map(_quote, root.split(".")))


def holds_data(folder: Path) -> bool:
    """Whether the folder holds any file besides table logs and hidden files."""
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(part.startswith(("_", ".")) for part in parts):
            return True
    return False


def clear_leftovers(folder: Path) -> None:
    """Remove the log of a table whose creation failed before its first commit: Delta would take
    it for an existing table.
    """
    log = folder / "_delta_log"
    if log.is_dir() and not holds_data(folder) and not any(log.glob("[0-9]*")):
        shutil.rmtree(log)


def check_writable(root: str) -> None:
    """Raise where a local root cannot be written: `LedgerError` if the storage is at fault, else
    `ConfigError`. Other roots are not checked: a write to them raises the error.
    """
    folder = local_folder(root)
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _LOCK_NAME).open("a").close()
        except OSError as error:
            raise _make_error(folder, error) from error


def probe_writable(root: str) -> None:
    """Raise as `check_writable` does, and leave nothing behind. Of a folder that does not exist
    yet, the nearest one above it is tried.
    """
    folder = local_folder(root)
    if folder is None:
        return
    try:
        there = next(each for each in (folder, *folder.parents) if each.exists())
        logs = list(folder.glob("*/_delta_log"))
        # Tables and the lock may belong to another user than the folder.
        for each in (there, *(log.parent for log in logs), *logs):
            TemporaryFile(dir=each).close()
        lock = folder / _LOCK_NAME
        if lock.exists():
            lock.open("a").close()
    except OSError as error:
        raise _make_error(folder, error) from error


def check_space(root: str, needed_bytes: int) -> None:
    """Raise `LedgerError` where a local root lacks the space for so many bytes and a log entry."""
    folder = local_folder(root)
    if folder is not None:
        disk = os.statvfs(folder)
        if disk.f_bavail * disk.f_frsize < needed_bytes + _LOG_BYTES:
            raise _make_error(folder, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


@contextmanager
def lock_for_writing(root: str, patience: Patience) -> Iterator[None]:
    """Hold the lock of a local root, so that there is one writer. Other roots need no lock: Delta
    itself handles several writers there.

    Raises `LedgerLockedError`, which names the process that holds it, once patience is at its end.
    """
    folder = local_folder(root)
    if folder is None:
        yield
        return
    try:
        lock = (folder / _LOCK_NAME).open("a+b", buffering=0)
    except OSError as error:
        raise _make_error(folder, error) from error
    with lock:
        while not _try_lock(lock):
            if not patience.wait(lambda: _holder(lock, folder)):
                raise LedgerLockedError(_holder(lock, folder))
        _name_holder(lock, patience.clock.now())
        try:
            yield
        finally:
            # The next holder may be a version that leaves no name.
            with suppress(OSError):
                lock.truncate(0)


def _make_error(folder: Path, error: OSError) -> DuesweepError:
    text = f"The ledger cannot be written under {folder}: {error.strerror}"
    if error.errno in _STORAGE_FAULTS:
        return LedgerError(f"{text}; the journal keeps the rows", transient=True)
    return ConfigError(text, advice="check ledger.root, and who owns that folder")


def _try_lock(lock: BinaryIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _name_holder(lock: BinaryIO, now: datetime) -> None:
    """Write into the lock's file who holds it, for whoever finds it locked."""
    # On a full disk the lock is as good without.
    with suppress(OSError):
        lock.truncate(0)
        holder = f"Process {os.getpid()} on {socket.gethostname()}\n{now:%F %T} UTC\n"
        lock.write(holder.encode())


def _holder(lock: BinaryIO, folder: Path) -> str:
    lock.seek(0)
    process, _, since = lock.read(500).decode(errors="replace").partition("\n")
    # Empty in the moment after the lock was taken.
    told = f" since {since.strip()}" if since else ""
    return f"{process or 'Another process'} has held the lock of the ledger under {folder}{told}"


def _quote(name: str) -> str:
    """`name` as an identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"
