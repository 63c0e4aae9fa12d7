"""What SQL Server's catalog says of a table."""

from collections.abc import Sequence

from duesweep.checks.tables import FoundTable
from duesweep.core.address import SqlServerTable, bracket_name
from duesweep.drivers.sqlserver.connection import SqlServerConnection


def is_there(connection: SqlServerConnection, table: SqlServerTable) -> bool:
    """Whether a table of this name exists; a view is none."""
    return bool(connection.row("find_table", name=table.sql).found)


def find_table(connection: SqlServerConnection, table: SqlServerTable) -> FoundTable | None:
    """The table, without its indexes; None if this user sees no such table. The table's database
    has to exist, and to be open to this user.
    """
    catalog = connection.named({"catalog": bracket_name(table.catalog)})
    rows = catalog.rows("describe_table", schema=table.schema, table=table.table)
    if not rows:
        return None
    return FoundTable(
        is_table=all(row.kind == "BASE TABLE" for row in rows),
        columns={row.name: row.type.lower() for row in rows},
    )


def missing_rights(
    connection: SqlServerConnection, table: SqlServerTable, rights: Sequence[str]
) -> Sequence[str]:
    """Those of `rights` that this user lacks on a table."""
    rows = connection.rows("describe_rights", name=table.sql, rights=",".join(rights))
    return [row.name for row in rows if not row.is_granted]
