"""The contract of a ledger's writer: how its tables are created, written, read and kept small.

There are two, and each continues what the other wrote: delta-rs, which needs no JVM, and Spark.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

from duesweep.core.message import ENCLOSED_MESSAGE_TYPES

if TYPE_CHECKING:
    import pyarrow as pa

# The first table is created first, and its id is the ledger's id.
TABLES = ("tombstones", "errors", "retries", "sweeps")
# Created by the first command that needs it. From then on, a property of the first table says that
# it has to be there.
CHANGES = "changes"

# A row that was read: columns by their names, as Python's values. Instants are aware, headers are a
# dict.
LedgerRow = dict[str, Any]
# May be asked for as a column of tables with headers: the header of that name, or NULL. All headers
# of many rows would take much memory.
ENCLOSED_TYPES = ENCLOSED_MESSAGE_TYPES
# The column that has the number of rows, where equal rows are counted.
COUNT = "rows"


class Among(NamedTuple):
    """The column has one of the values."""

    column: str
    values: Sequence[str]


class Between(NamedTuple):
    """The column is an instant from `start` (included) to `end` (not included); None: no limit."""

    column: str
    start: datetime | None = None
    end: datetime | None = None


# All of them have to hold. The storage skips what statistics say cannot fit.
Condition = Among | Between


@dataclass(frozen=True, slots=True)
class LedgerTableFacts:
    """What is at the location of the table `name`. `properties` None: no Delta table; then
    `holds_data` says whether there are data files without a log.
    """

    name: str
    location: str
    properties: Mapping[str, str] | None = None
    holds_data: bool = False


class TableSize(NamedTuple):
    """The data files of a table's current version, and their bytes."""

    files: int = 0
    bytes: int = 0


class Rows(NamedTuple):
    """Rows of a table, as Arrow, which can be read more than once. They take about so many `bytes`;
    0: not known.
    """

    batches: "Callable[[], Iterable[pa.RecordBatch]]"
    bytes: int = 0


class LedgerPiece(NamedTuple):
    """Rows of a sweep or command. Delta records it with the commit, as (appId, version), and so
    each table takes each piece once: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
    """

    rows: Rows
    sweep_id: UUID
    version: int = 1
    part: str = ""

    @property
    def app_id(self) -> str:
        """Delta's `appId`: the sweep's id, and the part of it that is counted by itself."""
        return f"{self.sweep_id}/{self.part}" if self.part else str(self.sweep_id)


class LedgerTables(Protocol):
    """The tables under one root, which is a path (with a `/` or a scheme) or a catalog schema.

    Where another process commits at the same time, a writer tries again. Raises `LedgerError` where
    the storage or the writer fails, `ConfigError` for a wrong root.
    """

    @property
    def root(self) -> str:
        """Where the tables are."""
        ...

    def facts(self, name: str) -> LedgerTableFacts:
        """What is at the table's location."""
        ...

    def create(self, name: str, properties: Mapping[str, str]) -> None:
        """Create the table, unless it is there."""
        ...

    def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Add properties to a table."""
        ...

    def append(self, name: str, pieces: Sequence[LedgerPiece]) -> None:
        """Append those of the pieces that the table does not have yet, in one commit where the
        writer can. Pieces of the same id count up. Adds columns that the table lacks.
        """
        ...

    def replace_source(self, name: str, source: str, piece: LedgerPiece) -> None:
        """Replace the rows of one source, unless the table has the piece already."""
        ...

    def read(
        self, name: str, columns: Sequence[str], conditions: Sequence[Condition]
    ) -> Iterator[LedgerRow]:
        """Rows of a table, as a stream: all that fit the conditions; none if there is no table."""
        ...

    def count(
        self, name: str, columns: Sequence[str], conditions: Sequence[Condition], least: int
    ) -> Iterator[LedgerRow]:
        """Each combination of values of these columns that occurs in `least` rows or more, and in
        how many, as the column `COUNT`; of rows that fit the conditions. None if there is no table.
        """
        ...

    def size(self, name: str) -> TableSize | None:
        """How large the table is; None: there is none."""
        ...

    def remove(self, name: str, source: str, column: str, before: datetime) -> int:
        """Remove a source's rows whose instant is before this one; how many."""
        ...

    def compact(self, name: str) -> int:
        """Write small files together into larger ones; how many small ones there were."""
        ...

    def vacuum(self, name: str, days: int) -> int | None:
        """Delete files that no version of the last `days` needs, and log entries that have expired;
        how many files. None: the writer does not tell.
        """
        ...
