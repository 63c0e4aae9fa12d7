"""What is expected of a PostgreSQL store's tables."""

from collections.abc import Iterator

from duesweep.checks.tables import WantedIndex, WantedTable
from duesweep.core.address import TableName
from duesweep.stores.postgresql.journal_columns import JOURNAL_COLUMNS
from duesweep.stores.postgresql.location import PostgreSqlLocation, journal_tables
from duesweep.stores.relational.wanted import wanted_delayed, wanted_journal


def wanted_tables(location: PostgreSqlLocation) -> Iterator[tuple[TableName, WantedTable]]:
    """The delayed table and the journal's."""
    delayed, kind = location.delayed, location.kind
    index = WantedIndex(
        kind.due,
        "every look for what is due reads the whole table",
        f"CREATE INDEX CONCURRENTLY ON {delayed} ({kind.names['due']})",
    )
    yield delayed, wanted_delayed(str(delayed), kind, index)
    for name, table in journal_tables(delayed.schema).items():
        yield table, wanted_journal(str(table), JOURNAL_COLUMNS[name])
