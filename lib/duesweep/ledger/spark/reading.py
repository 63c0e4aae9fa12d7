"""Reads rows of the ledger's tables by Spark, for ledgers in a catalog."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from duesweep.core.world import instant_of, micros
from duesweep.ledger.reading import COUNT, ENCLOSED_TYPES, Among, Condition, LedgerRow
from duesweep.ledger.schemas import SCHEMAS

# More values than that are joined: a plan with so many literals takes long.
_MOST_LITERALS = 1_000


def read_rows(
    table_df: DataFrame, name: str, columns: Sequence[str], conditions: Sequence[Condition]
) -> Iterator[LedgerRow]:
    """The rows that fit all conditions, with these columns; one partition is in memory at a time.

    Instants travel as microseconds: PySpark would give them in this process's time zone.
    """
    yield from _stream(_chosen(table_df, conditions), name, columns, ())


def count_rows(
    table_df: DataFrame,
    name: str,
    columns: Sequence[str],
    conditions: Sequence[Condition],
    *,
    least: int,
) -> Iterator[LedgerRow]:
    """Each combination of values of the columns that occurs `least` times or more, with `COUNT`."""
    counted_df = (
        _chosen(table_df, conditions)
        .groupBy(*columns)
        .agg(F.count(F.lit(1)).alias(COUNT))
        .filter(F.col(COUNT) >= least)
    )
    yield from _stream(counted_df, name, columns, [COUNT])


def _chosen(table_df: DataFrame, conditions: Sequence[Condition]) -> DataFrame:
    chosen_df = table_df
    for condition in conditions:
        if isinstance(condition, Among) and len(condition.values) > _MOST_LITERALS:
            values = [(value,) for value in condition.values]
            wanted_df = table_df.sparkSession.createDataFrame(
                values, f"`{condition.column}` string"
            )
            chosen_df = chosen_df.join(wanted_df, on=condition.column, how="left_semi")
        else:
            for predicate in _predicates(condition):
                chosen_df = chosen_df.filter(predicate)
    return chosen_df


def _stream(
    chosen_df: DataFrame, name: str, columns: Sequence[str], more: Sequence[str]
) -> Iterator[LedgerRow]:
    instants = {f.name for f in SCHEMAS[name] if pa.types.is_timestamp(f.type)}.intersection(
        columns
    )
    rows_df = chosen_df.select(
        *(_column(column, is_instant=column in instants) for column in columns), *more
    )
    for row in rows_df.toLocalIterator():
        yield _plain(row, [*columns, *more], instants)


def _column(name: str, *, is_instant: bool) -> Column:
    if name == ENCLOSED_TYPES:
        return F.try_element_at("headers", F.lit(ENCLOSED_TYPES))
    return F.unix_micros(name) if is_instant else F.col(name)


def _plain(row: Row, columns: Sequence[str], instants: set[str]) -> LedgerRow:
    return {
        name: _instant(value) if name in instants else _value(value)
        for name, value in zip(columns, row, strict=True)
    }


def _value(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def _instant(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else instant_of(microseconds)


def _predicates(condition: Condition) -> Iterator[Column]:
    if isinstance(condition, Among):
        yield F.col(condition.column).isin(list(condition.values))
    else:
        if condition.start is not None:
            yield F.unix_micros(condition.column) >= micros(condition.start)
        if condition.end is not None:
            yield F.unix_micros(condition.column) < micros(condition.end)
