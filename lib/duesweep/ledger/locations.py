"""Where a ledger is: a path (with a `/` or a scheme) or a catalog schema; what to mind there."""

import errno
import fcntl
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
# The storage's fault, not a setting's.
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
    """The folder of this machine that `root` is, if it is one."""
    if not is_path(root):
        return None
    parts = urlsplit(root)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return Path(root) if not parts.scheme else None


def holds_data(folder: Path) -> bool:
    """Whether there is any file that is no table's log and no hidden one."""
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(part.startswith(("_", ".")) for part in parts):
            return True
    return False


def clear_leftovers(folder: Path) -> None:
    """Remove what a creation that failed has left in a log without a commit: Delta would take it
    for a table that is there.
    """
    log = folder / "_delta_log"
    if log.is_dir() and not holds_data(folder) and not any(log.glob("[0-9]*")):
        shutil.rmtree(log)


def check_writable(root: str) -> None:
    """Raise where a local root cannot be written: `LedgerError` if that is the storage's fault,
    else `ConfigError`. Other roots say so themselves.
    """
    folder = local_folder(root)
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _LOCK_NAME).open("a").close()
        except OSError as error:
            raise _refusal(folder, error) from error


@contextmanager
def writing(root: str) -> Iterator[None]:
    """Be the only writer where Delta itself cannot see to it: under a local root."""
    folder = local_folder(root)
    if folder is None:
        yield
        return
    try:
        lock = (folder / _LOCK_NAME).open("a")
    except OSError as error:
        raise _refusal(folder, error) from error
    with lock:
        _lock_file(lock, folder)
        yield


def _refusal(folder: Path, error: OSError) -> DuesweepError:
    text = f"The ledger cannot be written under {folder}: {error.strerror}"
    if error.errno in _STORAGE_FAULTS:
        return LedgerError(f"{text}; the journal keeps the rows", transient=True)
    return ConfigError(text, advice="check ledger.root and who owns it")


def _lock_file(lock: IO[str], folder: Path) -> None:
    deadline = time.monotonic() + _LOCK_WAIT_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise LedgerError(
                    f"Another process has been writing the ledger under {folder} for "
                    f"{_LOCK_WAIT_SECONDS:.0f} s; the journal keeps what is to be written",
                    transient=True,
                ) from None
            time.sleep(_LOCK_POLL_SECONDS)
        else:
            return
