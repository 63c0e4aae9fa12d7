"""The contract of a ledger's writer: how its tables are read, created and written.

There are two, and each continues what the other wrote: delta-rs, which needs no JVM, and Spark.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from duesweep.ledger.identity import LedgerTableFacts
from duesweep.ledger.reading import Condition, LedgerRow
from duesweep.ledger.upkeep import LedgerUpkeep
from duesweep.stores.journal import ExhaustedPiece, Journal, SweepSummary

# A table's rows as its writer takes them: a DataFrame, or what delta-rs reads as Arrow.
Rows = Any


class AppTransaction(NamedTuple):
    """A piece of a sweep or command. Delta records it with the commit, as (appId, version), and so
    each table takes each piece once: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
    """

    sweep_id: UUID
    version: int = 1
    part: str = ""

    @property
    def app_id(self) -> str:
        """Delta's `appId`: the sweep's id, and the part of it that is counted by itself."""
        return f"{self.sweep_id}/{self.part}" if self.part else str(self.sweep_id)


class SweepRows(Protocol):
    """The rows of one sealed sweep or command for each table. Read again, they come in the same
    pieces.
    """

    def dispatched(self) -> Iterator[Rows]:
        """`tombstones` of what was dispatched, in pieces that fit the driver's memory."""
        ...

    def exhausted(self, piece: ExhaustedPiece) -> tuple[Rows, Rows]:
        """A piece of what was exhausted: for `tombstones`, and whole for `errors`."""
        ...

    def changes(self, piece: ExhaustedPiece) -> tuple[Rows, Rows]:
        """A piece of what a command changed: for `tombstones`, only what was cancelled, and for
        `changes`. Only if the journal is a `CommandJournal`.
        """
        ...

    def retries(self) -> Rows:
        """`retries`: the source's messages that failed and are still in the store."""
        ...

    def sweep(self, summary: SweepSummary) -> Rows:
        """`sweeps`: the one row."""
        ...


class LedgerTables(Protocol):
    """The tables under one root, which is a path (with a `/` or a scheme) or a catalog schema.

    Raises `LedgerError` where the storage or the writer fails, `ConfigError` for a wrong root.
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

    def append(self, name: str, rows: Rows, transaction: AppTransaction) -> None:
        """Append rows, once a transaction. Adds columns that the table lacks."""
        ...

    def replace_source(
        self, name: str, rows: Rows, source: str, transaction: AppTransaction
    ) -> None:
        """Replace the rows of one source, once a transaction."""
        ...

    def rows(self, journal: Journal, sweep_id: UUID) -> SweepRows:
        """The rows of a sweep, as `append` takes them."""
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

    def upkeep(self) -> LedgerUpkeep:
        """The upkeep of the same tables."""
        ...
