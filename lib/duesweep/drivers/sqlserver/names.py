"""Names of tables as T-SQL takes them."""

from duesweep.core.address import SqlServerTable
from duesweep.sql import statement

# The name of an application lock ends after 255 characters, of which "_lock" takes five.
_LOCK_LENGTH = 250


def table_names(**tables: SqlServerTable) -> dict[str, str]:
    """What statements have in braces: for each table its name, the same for the inside of an
    N'...' literal, and the name of the lock that the transport takes to create it.
    """
    names: dict[str, str] = {}
    for key, table in tables.items():
        lock = _quoted(table.sql[:_LOCK_LENGTH])
        names |= {
            key: table.sql,
            f"{key}_literal": _quoted(table.sql),
            f"{key}_lock": f"{lock}_lock",
        }
    return names


def creation(name: str, **tables: SqlServerTable) -> str:
    """The text of a statement that creates or alters tables."""
    return statement("sqlserver", name).format(**table_names(**tables))


def _quoted(name: str) -> str:
    return name.replace("'", "''")
