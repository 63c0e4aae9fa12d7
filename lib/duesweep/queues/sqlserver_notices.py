"""What is wrong with the queue tables of a database although they take messages, as the transport
warns of its own.
"""

from collections.abc import Iterator, Sequence

from duesweep.checks.tables import WantedIndex
from duesweep.core.address import SqlServerTable
from duesweep.drivers.sqlserver import SqlServerConnection
from duesweep.errors import Problem
from duesweep.queues.wanted import WAITED_FOR, sqlserver_queue

_SHOWN = 3


def queue_table_notices(connection: SqlServerConnection, catalog: str) -> Iterator[Problem]:
    """Queue tables of the session's database, which is `catalog`, whose headers are varchar, or
    that lack an index.
    """
    rows = connection.rows("queue_tables")
    narrow = [SqlServerTable(catalog, r.schema, r.table) for r in rows if r.is_narrow]
    if narrow:
        yield _narrow_headers(narrow)
    # Some servers give names in lower case here.
    indexed = {
        (row.schema.lower(), row.table.lower(), row.column_name)
        for row in connection.rows("queue_indexes")
    }
    lacking: dict[str, list[tuple[SqlServerTable, WantedIndex]]] = {}
    for row in rows:
        table = SqlServerTable(catalog, row.schema, row.table)
        for index in sqlserver_queue(WAITED_FOR, table).indexes:
            if (row.schema.lower(), row.table.lower(), index.column.lower()) not in indexed:
                lacking.setdefault(index.column, []).append((table, index))
    for column, found in lacking.items():
        yield _missing_index(column, found)


def _narrow_headers(tables: Sequence[SqlServerTable]) -> Problem:
    return Problem(
        f"The column Headers is varchar in {_names(tables)}: characters outside its code page "
        "become question marks in what endpoints send there, while sweeps write them as escapes",
        f"ALTER TABLE {tables[0].sql} ALTER COLUMN Headers nvarchar(max) NOT NULL, while its "
        "endpoint is stopped",
    )


def _missing_index(column: str, found: Sequence[tuple[SqlServerTable, WantedIndex]]) -> Problem:
    _, index = found[0]
    return Problem(
        f"No index that can be used begins with {column} in {_names([t for t, _ in found])}: "
        f"{index.harm}",
        f"run {index.statement}",
    )


def _names(tables: Sequence[SqlServerTable]) -> str:
    more = len(tables) - _SHOWN
    shown = ", ".join(table.sql for table in tables[:_SHOWN])
    return shown + (f" and {more} more queue tables" if more > 0 else "")
