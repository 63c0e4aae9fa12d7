"""Reads rows of a Delta table as a stream, without a JVM."""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import and_

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from duesweep.ledger.reading import ENCLOSED_TYPES, Among, Condition, LedgerRow

# Bodies may be large: few rows are decoded at a time, and few pages are read ahead.
_ROWS_WITH_BODIES, _ROWS = 64, 8_192
_INSTANT = pa.timestamp("us", tz="UTC")


def read_rows(
    table: DeltaTable, columns: Sequence[str], conditions: Sequence[Condition]
) -> Iterator[LedgerRow]:
    """The rows that fit all conditions, with these columns; the memory that it takes is bounded."""
    predicates = [each for condition in conditions for each in _predicates(condition)]
    scanner = table.to_pyarrow_dataset().scanner(
        columns={name: _expression(name) for name in columns},
        filter=reduce(and_, predicates) if predicates else None,
        batch_size=_ROWS_WITH_BODIES if "body" in columns else _ROWS,
        batch_readahead=1,
        fragment_readahead=1,
    )
    for batch in scanner.to_batches():
        yield from batch.to_pylist(maps_as_pydicts="lossy")


def _expression(name: str) -> pc.Expression:
    if name == ENCLOSED_TYPES:
        return pc.map_lookup(pc.field("headers"), ENCLOSED_TYPES, "first")
    return pc.field(name)


def _predicates(condition: Condition) -> Iterator[pc.Expression]:
    column = pc.field(condition.column)
    if isinstance(condition, Among):
        yield column.isin(pa.array(condition.values, pa.string()))
    else:
        if condition.start is not None:
            yield column >= pa.scalar(condition.start, _INSTANT)
        if condition.end is not None:
            yield column < pa.scalar(condition.end, _INSTANT)
