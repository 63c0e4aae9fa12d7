"""What PostgreSQL's catalog says of a table."""

from collections.abc import Sequence

from duesweep.checks.tables import Columns, FoundTable
from duesweep.core.address import TableName
from duesweep.drivers.postgresql.session import PostgreSqlSession

# Ordinary and partitioned tables. Foreign tables know neither SKIP LOCKED nor a common
# transaction; views have no rows of their own.
_TABLE_KINDS = {"r", "p"}


def find_table(
    session: PostgreSqlSession, table: TableName, rights: Sequence[str] = ()
) -> FoundTable | None:
    """The table, without its indexes, and which of `rights` the session lacks on it; None if it
    does not exist.
    """
    rows = session.rows(
        "describe_table", schema=table.schema, table=table.table, rights=list(rights)
    )
    if not rows:
        return None
    (found,) = rows
    return FoundTable(
        is_table=found.kind in _TABLE_KINDS,
        columns=dict(zip(found.column_names, found.column_types, strict=True)),
        missing_rights=found.missing_rights,
        mark=found.mark,
    )


def similar_tables(session: PostgreSqlSession, table: TableName) -> Sequence[str]:
    """Tables of the database whose names end as this one's."""
    rows = session.rows("similar_tables", ending=_ending(table.table))
    return [str(TableName(row.schema, row.name)) for row in rows]


def _ending(name: str) -> str:
    """`.Delayed` of `Sales.Delayed`; the whole name if it has no dot."""
    return "." + name.rpartition(".")[2] if "." in name else name


def column_lists(columns: Columns) -> dict[str, list[str]]:
    """The values of statements that look for tables with these columns."""
    return {
        "typed": [f"{name} {kind}" for name, kinds in columns.items() for kind in kinds],
        "named": [name for name, kinds in columns.items() if not kinds],
    }
