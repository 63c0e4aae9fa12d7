"""Queue tables of the PostgreSQL transport."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from duesweep.core.address import PostgreSqlAddresses, TableName
from duesweep.core.errors import (
    DestinationError,
    MessageError,
    NotAQueueError,
    QueueNotFoundError,
)
from duesweep.core.finding import Check, refuse
from duesweep.core.message import Message
from duesweep.drivers.postgresql.session import PostgreSqlSession
from duesweep.drivers.statements import Columns, FoundTable, Session
from duesweep.queues.base import Destination
from duesweep.queues.tables import CREATE, WAITED_FOR, QueueTables, QueueTableSession
from duesweep.stores.checks_postgresql import POSTGRESQL_TABLES, column_lists
from duesweep.stores.dialect import Dialect, WantedTable
from duesweep.stores.postgresql import POSTGRESQL
from duesweep.stores.tables import column_names, wrong_columns
from duesweep.stores.task import Table

# The columns of a queue, each with its allowed types; an empty set allows any type.
COLUMNS: Columns = {
    "id": frozenset({"uuid"}),
    "headers": frozenset({"text"}),
    "body": frozenset({"bytea"}),
    "expires": frozenset(),
    # int, or bigint after its 32 bits were used up.
    "seq": frozenset(),
}


def postgresql_queue(role: str, table: TableName) -> WantedTable:
    """What delivery needs of a queue table."""
    return WantedTable(table, role, COLUMNS, ("INSERT",), CREATE[role])


class PostgreSqlQueueSession(QueueTableSession[PostgreSqlSession]):
    """Delivers by binary COPY, which applies no rules and no policies; where a table has some, by
    INSERT.
    """

    # The tables whose rules or policies have to apply.
    _ruled: frozenset[TableName] = frozenset()

    def table(self, destination: Destination) -> Table | None:
        return None if self._own_transaction else destination

    def read_tables(self) -> None:
        rows = self._connection.rows("queue_tables", **column_lists(COLUMNS))
        self._known = {TableName(row.schema, row.table) for row in rows}
        self._ruled = frozenset(TableName(r.schema, r.table) for r in rows if r.has_rules)

    def check_database(self, setting: str) -> None:
        found = POSTGRESQL_TABLES.check_session(self._connection, setting)
        refuse(each for each in found if each.check is Check.SERVER_WRITABLE)

    def examined(self, table: Destination) -> FoundTable:
        assert isinstance(table, TableName)  # from `addresses`
        wanted = postgresql_queue(WAITED_FOR, table)
        found = POSTGRESQL_TABLES.find(self._connection, [wanted]).get(table)
        if found is None:
            raise QueueNotFoundError(f"There is no queue table {table}")
        wrong = wrong_columns(COLUMNS, found.columns)
        if wrong or not found.is_table:
            absent = column_names(COLUMNS, wrong) or "rows of its own"
            raise NotAQueueError(f"{table} is not a queue table: it lacks {absent}")
        self._ruled |= {table} if found.has_rules else frozenset()
        return found

    def _find_fault(self, destination: Destination) -> MessageError | None:
        try:
            found = self.examined(destination)
        except MessageError:
            return super()._find_fault(destination)
        if (hidden := found.fault_by(Check.ROW_SECURITY)) is not None:
            # Its refusals have the state of a missing right, and no GRANT helps.
            raise DestinationError(hidden.found, transient=False, advice=hidden.advice)
        return None

    def _insert(self, destination: Destination, messages: Sequence[Message]) -> None:
        assert isinstance(destination, TableName)  # from `resolve`
        self._connection.execute("check_constraints_at_once")
        rows = [(message.headers_text, message.body) for message in messages]
        if destination in self._ruled:
            self._connection.insert_messages(destination, rows)
        else:
            self._connection.copy_messages(destination, rows)


@dataclass(frozen=True, slots=True)
class PostgreSqlQueue(QueueTables):
    """All queue tables of one database."""

    dialect: ClassVar[Dialect] = POSTGRESQL
    columns: ClassVar[Columns] = COLUMNS
    _CONNECTION: ClassVar[type[Session]] = PostgreSqlSession
    _SESSION: ClassVar[type[QueueTableSession[Any]]] = PostgreSqlQueueSession

    addresses: PostgreSqlAddresses
    wanted = staticmethod(postgresql_queue)


TABLES = PostgreSqlQueue
