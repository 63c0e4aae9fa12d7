"""Names of tables as T-SQL takes them."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from duesweep.core.address import SqlServerTable, bracket_name
from duesweep.sql import statement

# The longest name of an application lock. The server cuts longer ones here, the transport's too.
LONGEST_LOCK = 255
# Command-line tools begin without the first, and then refuse an index with a condition.
_PREAMBLE = """SET QUOTED_IDENTIFIER ON;
SET ANSI_NULLS ON;
USE {catalog};
"""


def table_names(**tables: SqlServerTable) -> dict[str, str]:
    """What statements have in braces: for each table its name, the same without its database, the
    same and its schema for the inside of an N'...' literal, and the name of the lock that the
    transport takes to create it.
    """
    names: dict[str, str] = {}
    for key, table in tables.items():
        names |= {
            key: table.sql,
            f"{key}_local": f"{bracket_name(table.schema)}.{bracket_name(table.table)}",
            f"{key}_literal": quoted(table.sql),
            f"{key}_schema": quoted(table.schema),
            f"{key}_lock": quoted(f"{table.sql}_lock"[:LONGEST_LOCK]),
        }
    return names


def creation(
    name: str, columns: Mapping[str, str] = MappingProxyType({}), /, **tables: SqlServerTable
) -> str:
    """The text of a statement that creates or alters tables. `columns` are quoted already."""
    return statement("sqlserver", name).format(**columns, **table_names(**tables))


def script(catalog: str, texts: Iterable[str]) -> str:
    """Statements for a database, in batches as the command-line tools of SQL Server take them."""
    return "GO\n".join([_PREAMBLE.format(catalog=bracket_name(catalog)), *texts])


def quoted(text: str) -> str:
    """`text` for the inside of a literal."""
    return text.replace("'", "''")
