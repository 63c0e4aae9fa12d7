"""What the doctor expects of a store's tables on SQL Server: all their columns, and the index."""

from collections.abc import Iterator

from duesweep.checks.tables import WantedIndex, WantedTable
from duesweep.core.address import SqlServerTable, bracketed
from duesweep.stores.relational.shapes import RESHAPE, SETUP, journal_columns
from duesweep.stores.sqlserver.kinds import SqlServerTableKind
from duesweep.stores.sqlserver.location import SqlServerLocation, journal_tables


def delayed_table(location: SqlServerLocation, table: SqlServerTable, grantee: str) -> WantedTable:
    """The delayed table."""
    kind = location.kind
    create_index = f"CREATE NONCLUSTERED INDEX {bracketed(kind.index)} ON {table.sql}"
    return WantedTable(
        role="delayed table",
        name=table.sql,
        columns={name: frozenset({of_type}) for name, of_type in kind.columns.items()},
        # A lock for an update takes the right to one.
        rights=("SELECT", "UPDATE", "DELETE"),
        grant=_grant(table, grantee),
        create=kind.advice.capitalize(),
        indexes=(
            WantedIndex(
                kind.due,
                "every look for what is due reads the whole table, and a claim locks more of it",
                f"{create_index} ({kind.names['due']})",
            ),
        ),
        unicode=_headers_text(kind),
    )


def journal(delayed: SqlServerTable, grantee: str) -> Iterator[tuple[SqlServerTable, WantedTable]]:
    """duesweep's own tables."""
    for name, table in journal_tables(delayed).items():
        columns = journal_columns("sqlserver")[name]
        yield (
            table,
            WantedTable(
                role=f"table of duesweep's {name}",
                name=table.sql,
                columns={column: frozenset({kind}) for column, kind in columns.items()},
                rights=("SELECT", "INSERT", "UPDATE", "DELETE"),
                grant=_grant(table, grantee),
                create=SETUP,
                reshape=RESHAPE,
            ),
        )


def _headers_text(kind: SqlServerTableKind) -> str | None:
    """The headers' column, where they are text: the MSMQ transport's are bytes."""
    return "Headers" if kind.columns["Headers"] == "nvarchar" else None


def _grant(table: SqlServerTable, grantee: str) -> str:
    beside = f"{bracketed(table.schema)}.{bracketed(table.table)}"
    return f"ON {beside} TO {bracketed(grantee)}, in database {table.catalog}"
