"""What the doctor expects of a PostgreSQL store's tables: all their columns, and the index."""

from collections.abc import Iterator

from duesweep.checks.tables import WantedIndex, WantedTable
from duesweep.core.address import TableName, quoted
from duesweep.stores.postgresql.location import PostgreSqlLocation
from duesweep.stores.relational.kinds import TableKind
from duesweep.stores.relational.shapes import RESHAPE, SETUP, journal_columns

# As the catalog writes what a statement calls otherwise.
_FULL_NAMES = {"timestamptz": "timestamp with time zone"}


def store_tables(
    location: PostgreSqlLocation, grantee: str
) -> Iterator[tuple[TableName, WantedTable]]:
    """The delayed table and the journal's."""
    yield location.delayed, _delayed(location.delayed, location.kind, grantee)
    for name, columns in journal_columns("postgresql").items():
        table = location.tables[name]
        yield (
            table,
            WantedTable(
                role=f"table of duesweep's {name}",
                name=str(table),
                columns={
                    column: frozenset({_FULL_NAMES.get(kind, kind)})
                    for column, kind in columns.items()
                },
                rights=("SELECT", "INSERT", "UPDATE", "DELETE"),
                grant=_grant(table, grantee),
                create=SETUP,
                reshape=RESHAPE,
            ),
        )


def _delayed(table: TableName, kind: TableKind, grantee: str) -> WantedTable:
    return WantedTable(
        role="delayed table",
        name=str(table),
        columns={name: frozenset({of_type}) for name, of_type in kind.columns.items()},
        # To lock a row takes the right to change it.
        rights=("SELECT", "UPDATE", "DELETE"),
        grant=_grant(table, grantee),
        create=kind.advice.capitalize(),
        indexes=(
            WantedIndex(
                kind.due,
                "every look for what is due reads the whole table",
                f"CREATE INDEX CONCURRENTLY ON {table} ({kind.names['due']})",
            ),
        ),
    )


def _grant(table: TableName, grantee: str) -> str:
    role = quoted(grantee)
    return f"ON {table} TO {role}; GRANT USAGE ON SCHEMA {quoted(table.schema)} TO {role}"
