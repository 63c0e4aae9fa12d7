"""What is expected of the tables of a store on SQL Server."""

from collections.abc import Iterator

from duesweep.checks.tables import WantedIndex, WantedTable
from duesweep.core.address import SqlServerTable, bracket_name
from duesweep.stores.relational.wanted import wanted_delayed, wanted_journal
from duesweep.stores.sqlserver.journal_columns import JOURNAL_COLUMNS
from duesweep.stores.sqlserver.kinds import SqlServerTableKind
from duesweep.stores.sqlserver.location import journal_tables


def wanted_tables(
    kind: SqlServerTableKind, delayed: SqlServerTable
) -> Iterator[tuple[SqlServerTable, WantedTable]]:
    """The delayed table and the journal's."""
    create_index = f"CREATE NONCLUSTERED INDEX {bracket_name(kind.index)} ON {delayed.sql}"
    index = WantedIndex(
        kind.due,
        "every look for what is due reads the whole table, and a claim locks more of it",
        f"{create_index} ({kind.names['due']})",
    )
    # The headers of the MSMQ transport are bytes.
    unicode = "Headers" if kind.columns["Headers"] == "nvarchar" else None
    yield delayed, wanted_delayed(delayed.sql, kind, index, unicode)
    yield from wanted_journals(delayed)


def wanted_journals(beside: SqlServerTable) -> Iterator[tuple[SqlServerTable, WantedTable]]:
    """duesweep's own tables beside a delayed table."""
    for name, table in journal_tables(beside).items():
        yield table, wanted_journal(table.sql, JOURNAL_COLUMNS[name])
