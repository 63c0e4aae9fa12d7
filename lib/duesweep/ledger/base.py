"""The location of a ledger, a path (with a `/` or a scheme) or a catalog schema, and the contract
of its writer: how its tables are created, written, read and kept small.

There are two writers, and each continues the other's work: delta-rs, which needs no JVM, and
Spark.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit
from uuid import UUID

from duesweep.core.errors import ConfigError, DuesweepError, LedgerError, LedgerLockedError
from duesweep.core.message import ENCLOSED_MESSAGE_TYPES
from duesweep.core.world import Patience
from duesweep.drivers.process import open_lock, process_name, try_lock
from duesweep.drivers.statements import statements  # noqa: TID251 - of its own folder

if TYPE_CHECKING:
    import pyarrow as pa

# The first table is created first, and its id is the ledger's id.
TABLES = ("tombstones", "errors", "retries", "sweeps")
# Created by the first command that needs it. After that, a property of the first table says that
# it has to be there.
CHANGES = "changes"

# A row that was read: columns by their names, as Python's values. Headers are a dict. Instants are
# aware; one outside of Python's years, which a message's Due may be, is the first or last of them.
LedgerRow = dict[str, Any]
# The name of an instant with this ending may be asked for as a column: the instant exactly, in
# microseconds since 1970-01-01 UTC.
MICROSECONDS = "_us"
# May be asked for as a column of tables with headers, and be in a condition of a question: the
# header of that name, or NULL. All headers of many rows would take much memory.
ENCLOSED_TYPES = ENCLOSED_MESSAGE_TYPES
_LOCK_NAME = ".duesweep.lock"
_LOG_BYTES = 500_000
# These are faults of the storage, not of a setting.
_STORAGE_FAULTS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.ETIMEDOUT),
    *(errno.EMFILE, errno.ENFILE),
    *(errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH),
}


def is_path(root: str) -> bool:
    """Whether `root` is a path, and not a catalog schema."""
    return "/" in root or ":" in root


def root_scheme(root: str) -> str:
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
    """Whether the folder holds any file except table logs and hidden files. Raises `OSError` if
    this user may not look into it: taken for empty, its ledger would seem to be gone.
    """
    for _, folders, files in os.walk(folder, onerror=_raise_unless_missing):
        if any(not name.startswith(("_", ".")) for name in files):
            return True
        folders[:] = [name for name in folders if not name.startswith(("_", "."))]
    return False


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


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
            open_lock(folder / _LOCK_NAME).close()
        except OSError as error:
            raise _storage_error(folder, error) from error


def probe_writable(root: str) -> None:
    """Raise as `check_writable` does, and leave nothing behind. Of a folder that does not exist
    yet, the nearest one above it is tried.
    """
    folder = local_folder(root)
    if folder is None:
        return
    try:
        there = nearest_folder(folder)
        logs = list(folder.glob("*/_delta_log"))
        # Tables and the lock may belong to another user than the folder.
        for each in (there, *(log.parent for log in logs), *logs):
            TemporaryFile(dir=each).close()
        lock = folder / _LOCK_NAME
        if lock.exists():
            open_lock(lock).close()
    except OSError as error:
        raise _storage_error(folder, error) from error


def nearest_folder(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(each for each in (folder, *folder.absolute().parents) if each.exists())


def check_space(root: str, needed_bytes: int) -> None:
    """Raise `LedgerError` if a local root lacks the space for this many bytes and a log entry."""
    folder = local_folder(root)
    if folder is not None:
        disk = os.statvfs(folder)
        if disk.f_bavail * disk.f_frsize < needed_bytes + _LOG_BYTES:
            raise _storage_error(folder, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


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
        lock = open_lock(folder / _LOCK_NAME)
    except OSError as error:
        raise _storage_error(folder, error) from error
    with lock:
        while not try_lock(lock):
            if not patience.wait(lambda: _holder(lock, folder)):
                raise LedgerLockedError(_holder(lock, folder))
        # For a process that finds it locked. On a full disk the lock is as good without.
        with suppress(OSError):
            lock.truncate(0)
            taken_at = patience.clock.now()
            lock.write(f"Process {process_name()}\n{taken_at:%F %T} UTC\n".encode())
        try:
            yield
        finally:
            # The next holder may be a version that leaves no name.
            with suppress(OSError):
                lock.truncate(0)


def _storage_error(folder: Path, error: OSError) -> DuesweepError:
    text = f"The ledger cannot be written under {folder}: {error.strerror}"
    if error.errno in _STORAGE_FAULTS:
        return LedgerError(f"{text}; the journal keeps the rows", transient=True)
    return ConfigError(text, advice="check ledger.root, and who owns that folder")


def _holder(lock: BinaryIO, folder: Path) -> str:
    lock.seek(0)
    process, _, since = lock.read(500).decode(errors="replace").partition("\n")
    # Empty in the moment after the lock was taken.
    told = f" since {since.strip()}" if since else ""
    return f"{process or 'Another process'} has held the lock of the ledger under {folder}{told}"


def _quote(name: str) -> str:
    """`name` as an identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def questions() -> Mapping[str, str]:
    """The statements of `sql/ledger`, by their names."""
    return statements("ledger")


class Among(NamedTuple):
    """The column has one of the values; None is NULL."""

    column: str
    values: Sequence[str | None]


class Named(NamedTuple):
    """The message has one of these keys or message ids."""

    names: Sequence[str]

    @property
    def either(self) -> Sequence[Among]:
        """One of these has to hold."""
        return [Among(column, self.names) for column in ("message_key", "message_id")]


class Between(NamedTuple):
    """The column is an instant from `start` (included) to `end` (not included); None: no limit."""

    column: str
    start: datetime | None = None
    end: datetime | None = None


# All of them have to hold. The storage skips what statistics say cannot fit.
Condition = Among | Named | Between
# The rows of tables that a question is about, by the tables' names.
Asked = Mapping[str, Sequence[Condition]]


@dataclass(frozen=True, slots=True)
class LedgerTableFacts:
    """The state of the location of the table `name`. `properties` None: no Delta table; then
    `holds_data` says whether there are data files without a log. `beyond` are features of the
    table that this writer cannot read.
    """

    name: str
    location: str
    properties: Mapping[str, str] | None = None
    holds_data: bool = False
    beyond: Sequence[str] = ()


class TableSize(NamedTuple):
    """The data files of a table's current version, and their bytes."""

    files: int = 0
    bytes: int = 0


class Rows(NamedTuple):
    """Rows of a table, as Arrow, which can be read more than once. They take about `bytes`;
    0: not known.
    """

    batches: "Callable[[], Iterable[pa.RecordBatch]]"
    bytes: int = 0


class LedgerPiece(NamedTuple):
    """Rows of a sweep or command for a table. Delta records it with the commit, as (appId,
    version), and so each table takes each piece once:
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md

    `replaces`: they take the place of all rows that the table has of this source.
    """

    table: str
    rows: Rows
    sweep_id: UUID
    version: int = 1
    part: str = ""
    replaces: str | None = None

    @property
    def app_id(self) -> str:
        """Delta's `appId`: the sweep's id, and the part of it that is counted by itself."""
        return f"{self.sweep_id}/{self.part}" if self.part else str(self.sweep_id)


class LedgerTables(Protocol):
    """The tables under one root, which is a path (with a `/` or a scheme) or a catalog schema.

    If another process commits at the same time, a writer tries again. Raises `LedgerError` if
    the storage or the writer fails, `ConfigError` for a wrong root.
    """

    root: str

    def facts(self, name: str) -> LedgerTableFacts:
        """The state of the table's location."""

    def create(self, name: str, properties: Mapping[str, str]) -> None:
        """Create the table, unless it is there."""

    def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Add properties to a table."""

    def write(self, pieces: Sequence[LedgerPiece]) -> None:
        """Write the pieces that their table, one for all, does not have yet, in one commit if the
        writer can. Either all replace the rows of one source, or none does. Pieces of the same id
        count up. Adds columns that the table lacks.
        """

    def read(
        self, name: str, columns: Sequence[str], conditions: Sequence[Condition]
    ) -> Iterator[LedgerRow]:
        """Rows of a table, as a stream: all that fit the conditions; none if there is no table."""

    def ask(self, question: str, tables: Asked, **values: str | int) -> Iterator[LedgerRow]:
        """The rows of a statement of `questions` about the rows of these tables that fit the
        conditions, with these values. A table that is missing has no rows; without the first one
        there is no answer.
        """

    def has(self, name: str, sweep_id: UUID) -> bool:
        """Whether the table has rows of a sweep or a command."""

    def size(self, name: str) -> TableSize | None:
        """How large the table is; None: it is missing."""

    def remove(self, name: str, source: str, column: str, before: datetime) -> int:
        """Remove a source's rows whose instant is before this one; how many."""

    def compact(self, name: str) -> int:
        """Write small files together into larger ones; how many small ones there were."""

    def try_out(self, trial: str) -> None:
        """Create a table of the name `trial`, write and read a row of it, and remove it again. For
        a folder that does not exist yet, in the nearest one above it.
        """

    def vacuum(self, name: str, days: int) -> int | None:
        """Delete files that no version of the last `days` needs, and log entries that have expired;
        how many files. None: the writer does not tell.
        """
