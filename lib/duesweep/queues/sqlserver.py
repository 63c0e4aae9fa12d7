"""Queue tables of the SQL Server transport, in any database and schema of a server."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from duesweep.core.address import SqlServerAddresses, SqlServerTable
from duesweep.core.errors import (
    DestinationError,
    MessageError,
    NotAQueueError,
    Problem,
    QueueNotFoundError,
    StoreError,
    TransactionLostError,
)
from duesweep.core.finding import Finding, notices, refuse
from duesweep.core.headers import escape_non_ascii
from duesweep.core.message import Message
from duesweep.drivers.sqlserver.session import SqlServerSession
from duesweep.drivers.statements import Columns, FoundTable, Session
from duesweep.queues.base import Destination
from duesweep.queues.tables import CREATE, WAITED_FOR, QueueTables, QueueTableSession
from duesweep.stores.base import DriverSession
from duesweep.stores.checks_sqlserver import RECOVERABLE, SQL_SERVER_TABLES
from duesweep.stores.dialect import Dialect, WantedIndex, WantedTable
from duesweep.stores.sqlserver import SQL_SERVER
from duesweep.stores.tables import table_findings, wrong_columns
from duesweep.stores.task import Table

# The columns of a queue, each with its allowed types.
COLUMNS: Columns = {
    "Id": frozenset({"uniqueidentifier"}),
    "Headers": frozenset({"nvarchar", "varchar", "ntext"}),
    "Body": frozenset({"varbinary", "image"}),
    "Expires": frozenset({"datetime", "datetime2"}),
    "RowVersion": frozenset({"bigint", "int"}),
}
_HEADERS, _NARROW = "Headers", "varchar"
# Errors: no right on a table, no right on a column.
_NO_RIGHT = {229, 230}


def sqlserver_queue(role: str, table: SqlServerTable) -> WantedTable:
    """What delivery needs of a queue table, and the transport's indexes."""
    name = table.sql
    return WantedTable(
        table,
        role,
        COLUMNS,
        # SELECT to count the arrived rows: a trigger may drop rows without an error.
        rights=("SELECT", "INSERT"),
        create=CREATE[role],
        unicode=_HEADERS,
        indexes=(
            WantedIndex(
                "Expires",
                "removing expired messages reads the whole queue",
                f"CREATE NONCLUSTERED INDEX [Index_Expires] ON {name} ([Expires]) INCLUDE ([Id], "
                "[RowVersion]) WHERE [Expires] IS NOT NULL",
                partial=True,
            ),
            WantedIndex(
                "RowVersion",
                "its receiver looks for the oldest message in the whole queue",
                f"CREATE NONCLUSTERED INDEX [Index_RowVersion] ON {name} ([RowVersion] ASC)",
            ),
        ),
    )


@dataclass(frozen=True, slots=True)
class SqlServerQueueTable:
    """A queue table. `has_recoverable`: it is of the older shape, in which each row says that it is
    recoverable. `is_narrow`: its headers hold the characters of one code page only, and any other
    would become a question mark.
    """

    table: SqlServerTable
    has_recoverable: bool
    is_narrow: bool = False

    @classmethod
    def of(cls, table: SqlServerTable, columns: Mapping[str, str]) -> "SqlServerQueueTable":
        """One with these columns and types."""
        return cls(table, RECOVERABLE in columns, columns[_HEADERS] == _NARROW)

    def __str__(self) -> str:
        return str(self.table)

    def headers(self, text: str) -> str:
        """Headers as the table can hold them."""
        return escape_non_ascii(text) if self.is_narrow else text


class SqlServerQueueSession(QueueTableSession[SqlServerSession]):
    """Delivers by arrays of parameters."""

    def __init__(
        self,
        connection: SqlServerSession,
        addresses: SqlServerAddresses,
        *,
        own_transaction: bool = False,
    ) -> None:
        super().__init__(connection, addresses, own_transaction=own_transaction)
        self._catalog = addresses.default_catalog
        self._tables: dict[Destination, SqlServerQueueTable] = {}

    def table(self, destination: Destination) -> Table | None:
        """Tables in other databases, and with narrow headers, need `deliver`."""
        assert isinstance(destination, SqlServerTable)  # from `resolve`
        table = self._tables[destination]
        is_beside = not self._own_transaction and destination.catalog == self._catalog
        return table if is_beside and not table.is_narrow else None

    def read_tables(self) -> None:
        """Read the tables of the session's database; tables in others at their first use."""
        tables = [
            SqlServerQueueTable(
                SqlServerTable(self._catalog, row.schema, row.table),
                bool(row.has_recoverable),
                bool(row.is_narrow),
            )
            for row in self._connection.rows("queue_tables")
        ]
        self._tables = {one.table: one for one in tables}
        self._known = set(self._tables)

    def notices(self) -> Sequence[Problem]:
        """Faults of the queue tables of its database."""
        return list(queue_table_notices(self._connection, self._catalog))

    def check_database(self, setting: str) -> None:
        refuse(SQL_SERVER_TABLES.check_session(self._connection, setting))

    def examined(self, table: Destination) -> FoundTable:
        assert isinstance(table, SqlServerTable)  # from `addresses`
        try:
            found = _found(self._connection, table)
        except TransactionLostError:
            raise
        except StoreError as error:
            raise DestinationError(f"Queue table {table} cannot be read: {error}") from error
        absent = wrong_columns(COLUMNS, found.columns)
        if absent:
            raise NotAQueueError(f"{table} is not a queue table: it lacks {', '.join(absent)}")
        self._tables[table] = SqlServerQueueTable.of(table, found.columns)
        return found

    def _insert(self, destination: Destination, messages: Sequence[Message]) -> None:
        assert isinstance(destination, SqlServerTable)  # from `resolve`
        table = self._tables[destination]
        self._connection.insert_messages(
            destination,
            "insert_recoverable_message" if table.has_recoverable else "insert_message",
            {"queue": destination.sql},
            [(table.headers(message.headers_text), message.body) for message in messages],
        )

    def _find_fault(self, destination: Destination) -> MessageError | None:
        try:
            return super()._find_fault(destination)
        except StoreError:
            # The catalog is locked, because the table is being altered. So the table exists.
            return None


@dataclass(frozen=True, slots=True)
class SqlServerQueue(QueueTables):
    """All queue tables of one server."""

    dialect: ClassVar[Dialect] = SQL_SERVER
    columns: ClassVar[Columns] = COLUMNS
    _CONNECTION: ClassVar[type[Session]] = SqlServerSession
    _SESSION: ClassVar[type[QueueTableSession[Any]]] = SqlServerQueueSession

    addresses: SqlServerAddresses
    wanted = staticmethod(sqlserver_queue)

    def notices(self, store: DriverSession) -> Sequence[Problem]:
        with self.asking(store) as session:
            found: Sequence[Problem] = session.notices()
        return found


TABLES = SqlServerQueue


def _found(connection: SqlServerSession, table: SqlServerTable) -> FoundTable:
    database = connection.row("describe_catalog", catalog=table.catalog)
    if not database.found:
        raise QueueNotFoundError(f"There is no queue table {table}: no database {table.catalog}")
    if not database.is_open:
        raise DestinationError(
            f"The sweeper's login has no user in database {table.catalog}, so it cannot "
            f"use {table}",
            transient=False,
            advice="create a user for it there",
        )
    found = SQL_SERVER_TABLES.find(connection, [sqlserver_queue(WAITED_FOR, table)]).get(table)
    if found is None:
        _refuse_hidden(connection, table)
        raise QueueNotFoundError(f"There is no queue table {table}")
    if not found.is_table:
        raise NotAQueueError(f"{table} is not a queue table: it lacks rows of its own")
    return found


def _refuse_hidden(connection: SqlServerSession, table: SqlServerTable) -> None:
    """Raise `DestinationError` for a table that exists, but on which this user has no right. SQL
    Server hides such a table. Without this, messages would be exhausted for a missing GRANT.
    """
    if not connection.row("describe_server").deletes_expressions:
        return  # Babelfish shows it, and ends the transaction for a table that is missing
    if connection.named({"queue": table.sql}).error_number("probe_queue") in _NO_RIGHT:
        raise DestinationError(
            f"The sweeper's user has no right on queue table {table}",
            transient=False,
            advice="grant SELECT and INSERT on it",
        )


def queue_table_notices(connection: SqlServerSession, catalog: str) -> Iterator[Problem]:
    """Queue tables of the session's database, which is `catalog`, whose headers are varchar, or
    that lack an index: they take messages, but the transport warns of its own.
    """
    indexes, tables = connection.rows_of_each(
        ("queue_indexes", {}, {}), ("queue_tables", {}, {}), what="queue_tables"
    )
    # Some servers give names in lower case here.
    indexed: dict[tuple[str, str], set[str]] = {}
    for row in indexes:
        indexed.setdefault((row.schema.lower(), row.table.lower()), set()).add(row.column_name)
    findings: list[Finding] = []
    for row in tables:
        columns = {c: min(types) for c, types in COLUMNS.items()}
        columns[_HEADERS] = _NARROW if row.is_narrow else "nvarchar"
        wanted = sqlserver_queue(WAITED_FOR, SqlServerTable(catalog, row.schema, row.table))
        has = indexed.get((row.schema.lower(), row.table.lower()), ())
        firsts = {(column, False) for column in COLUMNS if column.lower() in has}
        findings += table_findings(wanted, FoundTable(is_table=True, columns=columns), firsts)
    return notices(findings)
