"""Rows of a Delta table, by pyarrow: it reads the columns and files that are asked for, and no more
than a few pages ahead.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import and_, or_
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyarrow import fs

from duesweep.ledger.base import (
    ENCLOSED_TYPES,
    MICROSECONDS,
    Among,
    Condition,
    LedgerRow,
    Named,
)
from duesweep.ledger.rows import plain

# Bodies may be large: few rows are decoded at a time.
_ROWS_WITH_BODIES, _ROWS = 64, 8_192
_INSTANT = pa.timestamp("us", tz="UTC")


def scan(
    table: DeltaTable, columns: Sequence[str], conditions: Sequence[Condition]
) -> Iterator[LedgerRow]:
    """These columns of the rows that meet all conditions, in bounded memory."""
    predicates = [each for condition in conditions for each in _predicates(condition)]
    predicate = reduce(and_, predicates) if predicates else None
    tested = [column for condition in conditions for column in _columns(condition)]
    dataset = table.to_pyarrow_dataset(filesystem=_filesystem(table.table_uri))
    options = {
        "schema": dataset.schema,
        "batch_size": _ROWS_WITH_BODIES if "body" in columns else _ROWS,
        "batch_readahead": 1,
    }
    wanted = {name: _expression(name) for name in columns}
    for fragment in dataset.get_fragments(filter=predicate):
        if predicate is None or not _is_of_views(fragment.physical_schema):
            batches = fragment.to_batches(columns=wanted, filter=predicate, **options)
        else:
            read = wanted | {name: pc.field(name) for name in tested}
            batches = (
                batch.filter(predicate).select(list(columns))
                for batch in fragment.to_batches(columns=read, **options)
            )
        for batch in batches:
            yield from plain(batch)


def _filesystem(uri: str) -> fs.FileSystem | None:
    """pyarrow's own for a local folder: with delta-rs's, which is Python's, a thread that still
    reads when Python ends would abort the process. None: delta-rs's.
    """
    if urlsplit(uri).scheme not in {"", "file"}:
        return None
    local, path = fs.FileSystem.from_uri(uri)
    return fs.SubTreeFileSystem(path, local)


def has_views(table: DeltaTable) -> bool:
    """Whether delta-rs has rewritten a file, as its `delete` and `update` do: its texts are views,
    and pyarrow, and with it DuckDB, cannot compare these to the texts of a filter.
    """
    dataset = table.to_pyarrow_dataset(filesystem=_filesystem(table.table_uri))
    return any(_is_of_views(one.physical_schema) for one in dataset.get_fragments())


def _is_of_views(schema: pa.Schema) -> bool:
    return any(str(field.type) == "string_view" for field in schema)


def _expression(name: str) -> pc.Expression:
    if name == ENCLOSED_TYPES:
        return pc.map_lookup(pc.field("headers"), ENCLOSED_TYPES, "first")
    if name.endswith(MICROSECONDS):
        return pc.field(name.removesuffix(MICROSECONDS)).cast(pa.int64())
    return pc.field(name)


def _columns(condition: Condition) -> Sequence[str]:
    if isinstance(condition, Named):
        return [one.column for one in condition.either]
    return [condition.column]


def _predicates(condition: Condition) -> Iterator[pc.Expression]:
    if isinstance(condition, Named):
        yield reduce(or_, (one for each in condition.either for one in _predicates(each)))
        return
    column = pc.field(condition.column)
    if isinstance(condition, Among):
        yield column.isin(pa.array(condition.values, pa.string()))
    else:
        if condition.start is not None:
            yield column >= pa.scalar(condition.start, _INSTANT)
        if condition.end is not None:
            yield column < pa.scalar(condition.end, _INSTANT)
