"""Counts equal rows of a Delta table, without a JVM: by DataFusion, which delta-rs brings along."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from duesweep.ledger.delta_rs.quoting import literal, quote
from duesweep.ledger.reading import COUNT, Among, Condition, LedgerRow

# The groups of about so many rows are in memory at a time; for more, the table is read again.
_ROWS_PER_PASS = 1_000_000
_MOST_PASSES = 1_000


def count_rows(
    table: DeltaTable, columns: Sequence[str], conditions: Sequence[Condition], least: int
) -> Iterator[LedgerRow]:
    """Each combination of values of the columns that occurs `least` times or more, with `COUNT`.
    Where each is asked for, there should be few.
    """
    query = QueryBuilder().register("ledger_table", table)
    rows = table.count() if least > 1 else 0
    passes = max(1, min(-(-rows // _ROWS_PER_PASS), _MOST_PASSES))
    for number in range(passes):
        where = [*map(_predicate, conditions), *_part(columns[0], number, passes)]
        for batch in query.execute(_statement(columns, where, least)):
            yield from pa.record_batch(batch).to_pylist()


def _statement(columns: Sequence[str], where: Sequence[str], least: int) -> str:
    listed = ", ".join(map(quote, columns))
    condition = f" WHERE {' AND '.join(where)}" if where else ""
    return (
        f"SELECT {listed}, count(*) AS {quote(COUNT)} FROM ledger_table{condition} "  # noqa: S608 - quoted
        f"GROUP BY {listed} HAVING count(*) >= {least}"
    )


def _part(column: str, number: int, passes: int) -> Iterator[str]:
    """What chooses the rows of one pass. Equal values of the column are in the same one: it goes by
    the last two characters, since those of ids differ most.
    """
    if passes > 1:
        end, before = (f"ascii(right(coalesce({quote(column)}, ''), {n}))" for n in (1, 2))
        yield f"(31 * {end} + {before}) % {passes} = {number}"


def _predicate(condition: Condition) -> str:
    column = quote(condition.column)
    if isinstance(condition, Among):
        return f"{column} IN ({', '.join(map(literal, condition.values)) or 'NULL'})"
    limits = []
    if condition.start is not None:
        limits.append(f"{column} >= {literal(condition.start.isoformat())}")
    if condition.end is not None:
        limits.append(f"{column} < {literal(condition.end.isoformat())}")
    return " AND ".join(limits) or "true"
