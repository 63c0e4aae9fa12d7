"""Queue tables of the SQL Server transport, in any database and schema of a server."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from duesweep.checks.tables import SQL_SERVER_QUEUE_RIGHTS, wrong_columns
from duesweep.core.address import SqlServerAddresses, SqlServerTable
from duesweep.core.message import Message
from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.sqlserver import SqlServerConnection, connect
from duesweep.drivers.sqlserver.catalog import find_table, missing_rights
from duesweep.errors import (
    ConfigError,
    DestinationError,
    MessageError,
    NotAQueueError,
    Problem,
    QueueNotFoundError,
    StoreError,
    TransactionLostError,
)
from duesweep.queues.base import Destination
from duesweep.queues.columns import SQL_SERVER
from duesweep.queues.sqlserver_notices import queue_table_notices
from duesweep.queues.sqlserver_shape import QueueShape, shape_of
from duesweep.queues.tables import QueueTableSession
from duesweep.stores.base import TaskSession
from duesweep.stores.sqlserver.check import check_session
from duesweep.stores.sqlserver.task import SqlServerTaskSession

# Errors: no right on a table, no right on a column.
_NO_RIGHT = {229, 230}


@dataclass(frozen=True, slots=True)
class SqlServerQueue:
    """All queue tables of one server.

    `dsn` None: the store's own server and transaction. `setting` is the section that names the
    server; `holds_own_queue`: the endpoint's own queue has to be there.
    """

    addresses: SqlServerAddresses
    store_dsn: str = field(repr=False)
    dsn: str | None = field(default=None, repr=False)
    setting: str = "queues.default"
    holds_own_queue: bool = True
    timeouts: Timeouts = DEFAULT_TIMEOUTS

    @property
    def longest_delay(self) -> int:
        """0: a table cannot defer messages."""
        return 0

    @property
    def shares_transaction(self) -> bool:
        """Whether deliveries are part of the store's transaction."""
        return self.dsn is None

    @contextmanager
    def open(self, store: TaskSession) -> Iterator["SqlServerQueueSession"]:
        """A session in the store's transaction, or on a connection of its own."""
        if self.dsn is None:
            if not isinstance(store, SqlServerTaskSession):
                raise ConfigError(
                    f"{self.setting} has no dsn, but the store is not in SQL Server",
                    advice="give it one",
                )
            yield SqlServerQueueSession(store.connection, self.addresses)
        else:
            with connect(self.dsn, self.timeouts.task) as connection:
                yield SqlServerQueueSession(connection, self.addresses, own_transaction=True)

    def check(self, error_queue: str | None) -> None:
        """Raise `ConfigError` where the server of `dsn` is not that of the endpoint's queues, or
        `error_queue` is not a queue table that this user may insert into.
        """
        if self.dsn is None and error_queue is None:
            return  # the store's own check covers this
        with self._connect() as connection:
            if self.dsn is not None:
                check_session(connection, f"{self.setting}.dsn")
                self._check_own_queue(connection)
            if error_queue is not None:
                _check_error_queue(connection, self.addresses, error_queue)

    def table_notices(self) -> Sequence[Problem]:
        """What is wrong with the queue tables of the database."""
        with self._connect() as connection:
            return list(queue_table_notices(connection, self.addresses.default_catalog))

    def _check_own_queue(self, connection: SqlServerConnection) -> None:
        if not self.holds_own_queue:
            return
        try:
            describe_queue(connection, self.addresses.own_queue)
        except MessageError as error:
            raise ConfigError(
                f"{self.setting}.dsn does not lead to the endpoint's queues: {error}",
                advice="correct the dsn, or create the queue with the command `setup`",
            ) from error

    def _connect(self) -> SqlServerConnection:
        if self.dsn is None:
            return connect(self.store_dsn, self.timeouts.task)
        try:
            return connect(self.dsn, self.timeouts.task)
        except ConfigError as error:
            raise ConfigError(f"{self.setting}.dsn: {error.text}", advice=error.advice) from error


class SqlServerQueueSession(QueueTableSession):
    """Delivers by arrays of parameters."""

    def __init__(
        self,
        connection: SqlServerConnection,
        addresses: SqlServerAddresses,
        *,
        own_transaction: bool = False,
    ) -> None:
        super().__init__(connection, own_transaction=own_transaction)
        self._connection = connection
        self._addresses = addresses
        catalog = addresses.default_catalog
        # Read before anything is claimed: a query during a claim would make it longer. Tables in
        # other databases are read at their first use.
        self._shapes = {
            SqlServerTable(catalog, row.schema, row.table): QueueShape(
                bool(row.has_recoverable), bool(row.is_narrow)
            )
            for row in connection.rows("queue_tables")
        }

    def resolve(self, address: str | None) -> SqlServerTable:
        """The queue table that `address` names."""
        table = self._addresses.parse(address)
        if table not in self._shapes:
            self._look_up(table)
        return table

    def _insert(self, destination: Destination, messages: Sequence[Message]) -> None:
        assert isinstance(destination, SqlServerTable)  # from `resolve`
        shape = self._shapes[destination]
        self._connection.insert_messages(
            destination,
            "insert_recoverable_message" if shape.has_recoverable else "insert_message",
            {"queue": destination.sql},
            [(shape.headers(message.headers_text), message.body) for message in messages],
        )

    def _find_fault(self, destination: Destination) -> MessageError | None:
        """The error for the messages if the table is not a queue table any more; else None."""
        assert isinstance(destination, SqlServerTable)
        try:
            self._look_up(destination)
        except MessageError as error:
            return error
        except StoreError:
            # The catalog is locked, because somebody alters the table. So the table exists.
            return None
        return None

    def _look_up(self, table: SqlServerTable) -> None:
        self._shapes[table] = describe_queue(self._connection, table)


def describe_queue(connection: SqlServerConnection, table: SqlServerTable) -> QueueShape:
    """How a queue table is made. Raises `MessageError` if `table` is not a queue table,
    `DestinationError` if that cannot be read now.
    """
    try:
        found = _columns_of(connection, table)
    except TransactionLostError:
        raise
    except StoreError as error:
        raise DestinationError(f"Queue table {table} cannot be read: {error}") from error
    absent = wrong_columns(SQL_SERVER, found)
    if absent:
        raise NotAQueueError(f"{table} is not a queue table: it lacks {', '.join(absent)}")
    return shape_of(found)


def _columns_of(connection: SqlServerConnection, table: SqlServerTable) -> Mapping[str, str]:
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
    found = find_table(connection, table)
    if found is None:
        _refuse_hidden(connection, table)
        raise QueueNotFoundError(f"There is no queue table {table}")
    if not found.is_table:
        raise NotAQueueError(f"{table} is not a queue table: it lacks rows of its own")
    return found.columns


def _refuse_hidden(connection: SqlServerConnection, table: SqlServerTable) -> None:
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


def _check_error_queue(
    connection: SqlServerConnection, addresses: SqlServerAddresses, address: str
) -> None:
    try:
        table = addresses.parse(address)
        describe_queue(connection, table)
    except (MessageError, DestinationError) as error:
        raise ConfigError(
            f"retry.error_queue is {address!r}: {error}", advice="create it or correct the setting"
        ) from error
    missing = missing_rights(connection, table, SQL_SERVER_QUEUE_RIGHTS)
    if missing:
        raise ConfigError(
            f"retry.error_queue is {address!r}: the sweeper's user lacks {', '.join(missing)} on "
            f"{table}",
            advice="grant it",
        )
