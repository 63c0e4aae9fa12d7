"""SQL over the ledger's tables by DataFusion, which delta-rs brings along: the rows that fit
conditions, and answers to the questions of `sql/ledger`. It takes no bound values.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from tempfile import TemporaryDirectory

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError, DeltaProtocolError

from duesweep.core.world import micros
from duesweep.ledger.base import (
    ENCLOSED_TYPES,
    MICROSECONDS,
    Among,
    Asked,
    Condition,
    LedgerRow,
    Named,
    questions,
)
from duesweep.ledger.rows import SCHEMAS, plain

# The errors of delta-rs, except panics and a query's own.
FAILURES = (DeltaError, OSError, pa.ArrowException)

_MAPPING = "delta.columnMapping.mode"
# Of https://github.com/delta-io/delta/blob/master/PROTOCOL.md
_READABLE = {"timestampNtz", "variantType", "variantType-preview"}
_NANOSECOND_YEARS = range(1678, 2262)
_MOST_LITERALS = 1_000
# If a question has parts, about this many rows are grouped in memory at a time.
_ROWS_PER_PART = 1_000_000
# This rule of DataFusion's optimizer fails over questions to a ledger without the table `changes`.
_SETTINGS = {"datafusion.optimizer.enable_leaf_expression_pushdown": "false"}
# Bodies may be large: few rows are decoded at a time.
_FOR_BODIES = _SETTINGS | {
    "datafusion.execution.batch_size": "64",
    "datafusion.execution.target_partitions": "1",
}
# SQL for the braces of statements that only DataFusion understands.
_SQL = {
    **{"last_begin": "last_value(", "last_by": " ORDER BY ", "last_end": ")"},
    **{"micros_begin": "CAST(", "micros_end": " AS BIGINT)"},
}


def features_beyond(table: DeltaTable) -> list[str]:
    """The features of a table that delta-rs cannot read as a data set."""
    needed = set(table.protocol().reader_features or ())
    if table.metadata().configuration.get(_MAPPING, "none") != "none":
        needed.add("columnMapping")
    return sorted(needed - _READABLE)


class Query(ExitStack):
    """Queries of the tables that are registered. Very many values of a condition are a table in a
    temporary folder: as literals they would crash the process.
    """

    def __init__(self, *, with_bodies: bool = False) -> None:
        super().__init__()
        self.names: set[str] = set()
        self._builder = QueryBuilder()
        for name, value in (_FOR_BODIES if with_bodies else _SETTINGS).items():
            # Earlier versions of delta-rs lack some, and the rules that these are about.
            with suppress(*FAILURES):
                self._builder.execute(f"SET {name} = '{value}'")
        self._lists = 0

    def register(self, name: str, table: DeltaTable) -> None:
        """Raises if the table has features that delta-rs cannot read: a query might count rows that
        Spark has deleted.
        """
        if beyond := features_beyond(table):
            raise DeltaProtocolError(f"delta-rs does not support {', '.join(beyond)}")
        self._builder.register(name, table)
        self.names.add(name)

    def read(
        self, name: str, columns: Sequence[str], conditions: Sequence[Condition]
    ) -> Iterator[LedgerRow]:
        """These columns of the rows that fit, as a stream."""
        listed = ", ".join(f"{_expression(column)} AS {_quote(column)}" for column in columns)
        return self._rows(f"SELECT {listed} FROM {name} WHERE {self.where(conditions)}")  # noqa: S608 - quoted

    def ask(
        self, question: str, tables: Asked, values: Mapping[str, str | int]
    ) -> Iterator[LedgerRow]:
        """The rows of a statement of `questions`; see `LedgerTables.ask`."""
        first, text = next(iter(tables)), questions()[question]
        names = {name: self._fitting(name, conditions) for name, conditions in tables.items()}
        given = {
            name: literal(value) if isinstance(value, str) else str(value)
            for name, value in values.items()
        }
        parts = self.count(first) // _ROWS_PER_PART + 1 if "{part}" in text else 1
        for part in range(parts):
            of_part = {"part": str(part), "parts": str(parts)}
            yield from self._rows(text.format_map(names | given | of_part | _SQL))

    def count(self, name: str, predicate: str = "true") -> int:
        """How many rows of a table fit a condition in SQL."""
        (row,) = self._rows(f"SELECT count(*) AS rows FROM {name} WHERE {predicate}")  # noqa: S608 - quoted
        return int(row["rows"])

    def where(self, conditions: Sequence[Condition]) -> str:
        """The conditions in SQL."""
        return " AND ".join(map(self._predicate, conditions)) or "true"

    def _rows(self, text: str) -> Iterator[LedgerRow]:
        # pyarrow lets other threads work while it waits. delta-rs's own reader does not, and its
        # threads may wait for this one: as they take the rows of a write from Python.
        for batch in pa.RecordBatchReader.from_stream(self._builder.execute(text)):
            yield from plain(batch)

    def _fitting(self, name: str, conditions: Sequence[Condition]) -> str:
        """The rows of a table that fit, in SQL; none if the table is missing."""
        if name in self.names:
            return f"(SELECT * FROM {name} WHERE {self.where(conditions)})"  # noqa: S608 - quoted
        columns = (f"CAST(NULL AS VARCHAR) AS {_quote(column)}" for column in SCHEMAS[name].names)
        return f"(SELECT {', '.join(columns)} WHERE false)"

    def _predicate(self, condition: Condition) -> str:
        if isinstance(condition, Named):
            return f"({' OR '.join(map(self._predicate, condition.either))})"
        column = _expression(condition.column)
        if isinstance(condition, Among):
            known = [value for value in condition.values if value is not None]
            # delta-rs takes `IN (NULL)` for true.
            is_among = f"{column} IN ({self._listed(known)})" if known else "false"
            return f"({is_among} OR {column} IS NULL)" if None in condition.values else is_among
        limits = []
        if condition.start is not None:
            limits.append(f"{column} >= {_instant(condition.start)}")
        if condition.end is not None:
            limits.append(f"{column} < {_instant(condition.end)}")
        return " AND ".join(limits) or "true"

    def _listed(self, values: Sequence[str]) -> str:
        if len(values) <= _MOST_LITERALS:
            return ", ".join(map(literal, values))
        folder = self.enter_context(TemporaryDirectory())
        write_deltalake(folder, pa.table({"wanted": pa.array(values, pa.string())}))
        self._lists += 1
        self._builder.register(f"list_{self._lists}", DeltaTable(folder))
        return f"SELECT wanted FROM list_{self._lists}"  # noqa: S608 - numbers


def _expression(column: str) -> str:
    """The values of a column that may be asked for."""
    if column == ENCLOSED_TYPES:
        return f"headers[{literal(ENCLOSED_TYPES)}]"
    if column.endswith(MICROSECONDS):
        return f"CAST({_quote(column.removesuffix(MICROSECONDS))} AS BIGINT)"
    return _quote(column)


def _quote(name: str) -> str:
    """The name of a column in SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text, or an instant as text, which takes the type of the other side of a comparison."""
    return "'" + text.replace("'", "''") + "'"


def _instant(at: datetime) -> str:
    """DataFusion counts nanoseconds in a text, which not all years have. A cast is not understood
    by a write of earlier versions of delta-rs.
    """
    if at.year in _NANOSECOND_YEARS:
        return literal(at.isoformat())
    return f"arrow_cast({micros(at)}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
