"""A ledger's tables in memory: each takes each piece once, as Delta's do."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from uuid import UUID

from deltalake import write_deltalake
from pyarrow import RecordBatch

from duesweep.core.world import micros
from duesweep.ledger.base import (
    ENCLOSED_TYPES,
    MICROSECONDS,
    Among,
    Asked,
    Condition,
    LedgerPiece,
    LedgerRow,
    LedgerTableFacts,
    LedgerTables,
    Named,
    TableSize,
)
from duesweep.ledger.delta_rs import DeltaRsTables
from duesweep.ledger.ledger import Ledger
from duesweep.ledger.rows import SCHEMAS, plain
from duesweep.sweep.job import SweepContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class MemoryTable:
    """A table: its rows, and the last version of each id that it has taken."""

    properties: dict[str, str]
    rows: list[LedgerRow] = field(default_factory=list)
    taken: dict[str, int] = field(default_factory=dict)

    def has(self, piece: LedgerPiece) -> bool:
        """Whether the table has taken this piece, or a later one of its id."""
        return self.taken.get(piece.app_id, 0) >= piece.version

    def take(self, piece: LedgerPiece) -> None:
        for batch in piece.rows.batches():
            self.rows += plain(batch)
        self.taken[piece.app_id] = piece.version


class MemoryTables(LedgerTables):
    """The tables. Several threads may write them."""

    # A catalog's schema: no folder has to be locked.
    root = "memory"

    def __init__(self) -> None:
        self.tables: dict[str, MemoryTable] = {}
        self._changing = threading.RLock()

    def facts(self, name: str) -> LedgerTableFacts:
        table = self.tables.get(name)
        properties = None if table is None else dict(table.properties)
        return LedgerTableFacts(name, f"{self.root}.{name}", properties)

    def create(self, name: str, properties: Mapping[str, str]) -> None:
        with self._changing:
            self.tables.setdefault(name, MemoryTable(dict(properties)))

    def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        with self._changing:
            self.tables[name].properties |= properties

    def write(self, pieces: Sequence[LedgerPiece]) -> None:
        with self._changing:
            table, replaces = self.tables[pieces[0].table], pieces[0].replaces
            new = [piece for piece in pieces if not table.has(piece)]
            if new and replaces is not None:
                table.rows = [row for row in table.rows if row["source"] != replaces]
            for piece in new:
                table.take(piece)

    def read(
        self, name: str, columns: Sequence[str], conditions: Sequence[Condition]
    ) -> Iterator[LedgerRow]:
        for row in self._fitting(name, conditions):
            yield {column: _value(row, column) for column in columns}

    def ask(self, question: str, tables: Asked, **values: str | int) -> Iterator[LedgerRow]:
        """By delta-rs, of a copy on the disk."""
        with TemporaryDirectory() as folder:
            for name in tables:
                if name in self.tables:
                    write_deltalake(f"{folder}/{name}", _batch(name, self._fitting(name, [])))
            yield from DeltaRsTables(folder).ask(question, tables, **values)

    def _fitting(self, name: str, conditions: Sequence[Condition]) -> list[LedgerRow]:
        with self._changing:
            table = self.tables.get(name)
            rows = [] if table is None else table.rows
            return [row for row in rows if all(_fits(row, one) for one in conditions)]

    def has(self, name: str, sweep_id: UUID) -> bool:
        return bool(self._fitting(name, [Among("sweep_id", [str(sweep_id)])]))

    def size(self, name: str) -> TableSize | None:
        """No files."""
        return TableSize() if name in self.tables else None

    def remove(self, name: str, source: str, column: str, before: datetime) -> int:
        with self._changing:
            table = self.tables[name]
            kept = [
                row
                for row in table.rows
                if row["source"] != source or row[column] is None or row[column] >= before
            ]
            removed, table.rows = len(table.rows) - len(kept), kept
            return removed

    def compact(self, name: str) -> int:  # noqa: ARG002 - the contract's
        """Nothing: there are no files."""
        return 0

    def try_out(self, trial: str) -> None:
        """Memory takes all."""

    def vacuum(self, name: str, days: int) -> int:  # noqa: ARG002 - the contract's
        """Nothing: there are no files."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryContext(SweepContext):
    """The context of a sweep that writes its ledger into memory."""

    tables: MemoryTables = field(default_factory=MemoryTables)

    def open_ledger(self, spark: "SparkSession | None" = None) -> Ledger:  # noqa: ARG002 - in memory
        return Ledger(self.tables)


def _batch(name: str, kept: Sequence[LedgerRow]) -> RecordBatch:
    """The rows as a ledger's writer takes them: headers are pairs there."""
    headers = [(row.get("headers") or {}).items() for row in kept]
    pairs = [row | {"headers": [*each]} for row, each in zip(kept, headers, strict=True)]
    return RecordBatch.from_pylist(pairs, SCHEMAS[name])


def _value(row: LedgerRow, column: str) -> object:
    if column == ENCLOSED_TYPES:
        return (row["headers"] or {}).get(column)
    if column.endswith(MICROSECONDS):
        instant = row.get(column.removesuffix(MICROSECONDS))
        return None if instant is None else micros(instant)
    return row.get(column)


def _fits(row: LedgerRow, condition: Condition) -> bool:
    if isinstance(condition, Named):
        return any(_fits(row, one) for one in condition.either)
    value: Any = _value(row, condition.column)
    if isinstance(condition, Among):
        return value in condition.values
    if value is None:
        return condition.start is None and condition.end is None
    after = condition.start is None or value >= condition.start
    return after and (condition.end is None or value < condition.end)
