"""A ledger's location: a path (with a `/` or a scheme) or a catalog schema."""

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from duesweep.errors import ConfigError, DuesweepError, LedgerError

_LOCK_NAME = ".duesweep.lock"
_LOCK_WAIT_SECONDS = 300.0
_LOCK_POLL_SECONDS = 0.1
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


def check_space(root: str, needed_bytes: int) -> None:
    """Raise `LedgerError` where a local root lacks the space for so many bytes and a log entry."""
    folder = local_folder(root)
    if folder is not None:
        disk = os.statvfs(folder)
        if disk.f_bavail * disk.f_frsize < needed_bytes + _LOG_BYTES:
            raise _make_error(folder, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


@contextmanager
def lock_for_writing(root: str) -> Iterator[None]:
    """Hold the lock of a local root, so that there is one writer. Other roots need no lock: Delta
    itself handles several writers there.
    """
    folder = local_folder(root)
    if folder is None:
        yield
        return
    try:
        lock = (folder / _LOCK_NAME).open("a")
    except OSError as error:
        raise _make_error(folder, error) from error
    with lock:
        _lock_file(lock, folder)
        yield


def _make_error(folder: Path, error: OSError) -> DuesweepError:
    text = f"The ledger cannot be written under {folder}: {error.strerror}"
    if error.errno in _STORAGE_FAULTS:
        return LedgerError(f"{text}; the journal keeps the rows", transient=True)
    return ConfigError(text, advice="check ledger.root, and who owns that folder")


def _lock_file(lock: IO[str], folder: Path) -> None:
    deadline = time.monotonic() + _LOCK_WAIT_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise LedgerError(
                    f"Another process has been writing the ledger under {folder} for "
                    f"{_LOCK_WAIT_SECONDS:.0f} s; the journal keeps the rows",
                    transient=True,
                ) from None
            time.sleep(_LOCK_POLL_SECONDS)
        else:
            return


def _quote(name: str) -> str:
    """`name` as an identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"
