"""Queue tables of the PostgreSQL transport."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from duesweep.checks.tables import column_names, wrong_columns
from duesweep.core.address import PostgreSqlAddresses, TableName
from duesweep.core.message import Message
from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.postgresql import PostgreSqlConnection, connect
from duesweep.drivers.postgresql.catalog import column_lists, find_table
from duesweep.errors import (
    ConfigError,
    MessageError,
    NotAQueueError,
    QueueNotFoundError,
    RefusedMessageError,
    UnusualBatchError,
)
from duesweep.queues.base import Destination
from duesweep.queues.columns import POSTGRESQL
from duesweep.queues.tables import QueueTableSession
from duesweep.stores.base import TaskSession
from duesweep.stores.postgresql.task import PostgreSqlTaskSession


@dataclass(frozen=True, slots=True)
class PostgreSqlQueue:
    """All queue tables of one database.

    `dsn` None: the store's own database and transaction. `setting` is the section that names the
    database; `holds_own_queue`: the endpoint's own queue has to be there.
    """

    addresses: PostgreSqlAddresses
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
    def open(self, store: TaskSession) -> Iterator["PostgreSqlQueueSession"]:
        """A session in the store's transaction, or on a connection of its own."""
        if self.dsn is None:
            if not isinstance(store, PostgreSqlTaskSession):
                raise ConfigError(
                    f"{self.setting} has no dsn, but the store is not in PostgreSQL",
                    advice="give it one",
                )
            yield PostgreSqlQueueSession(store.connection, self.addresses)
        else:
            with connect(self.dsn, self.timeouts.task) as connection:
                yield PostgreSqlQueueSession(connection, self.addresses, own_transaction=True)

    def check(self, error_queue: str | None) -> None:
        """Raise `ConfigError` where the database of `dsn` is not that of the endpoint's queues, or
        `error_queue` is not a queue table that this role may insert into.
        """
        if self.dsn is None and error_queue is None:
            return  # the store's own check covers this
        with self._connect() as connection:
            if self.dsn is not None:
                own_queue = self.addresses.own_queue if self.holds_own_queue else None
                _check_database(connection, self.setting, own_queue)
            if error_queue is not None:
                _check_error_queue(connection, self.addresses, error_queue)

    def _connect(self) -> PostgreSqlConnection:
        if self.dsn is None:
            return connect(self.store_dsn, self.timeouts.task)
        try:
            return connect(self.dsn, self.timeouts.task)
        except ConfigError as error:
            raise ConfigError(f"{self.setting}.dsn: {error.text}", advice=error.advice) from error


class PostgreSqlQueueSession(QueueTableSession):
    """Delivers by binary COPY."""

    def __init__(
        self,
        connection: PostgreSqlConnection,
        addresses: PostgreSqlAddresses,
        *,
        own_transaction: bool = False,
    ) -> None:
        super().__init__(connection, own_transaction=own_transaction)
        self._connection = connection
        self._addresses = addresses
        # Read before anything is claimed: a query during a claim would make it longer.
        self._known = {
            TableName(row.schema, row.table)
            for row in connection.rows("queue_tables", **column_lists(POSTGRESQL))
        }

    def resolve(self, address: str | None) -> TableName:
        """The queue table that `address` names."""
        table = self._addresses.parse(address)
        if table not in self._known:
            self._look_up(table)
        return table

    def append(self, destination: Destination, messages: Sequence[Message]) -> None:
        """Deliver the group without a savepoint, in a transaction that checks constraints at once:
        one that took messages does.
        """
        try:
            self._copy(destination, messages)
        except RefusedMessageError as error:
            raise UnusualBatchError(str(error)) from error

    def _insert(self, destination: Destination, messages: Sequence[Message]) -> None:
        self._connection.execute("check_constraints_at_once")
        self._copy(destination, messages)

    def _copy(self, destination: Destination, messages: Sequence[Message]) -> None:
        assert isinstance(destination, TableName)  # from `resolve`
        rows = [(message.headers_text, message.body) for message in messages]
        self._connection.copy_messages(destination, rows)

    def _find_fault(self, destination: Destination) -> MessageError | None:
        """The error for the messages if the table is not a queue table any more; else None."""
        assert isinstance(destination, TableName)
        self._known.discard(destination)
        try:
            self._look_up(destination)
        except MessageError as error:
            return error
        return None

    def _look_up(self, table: TableName) -> None:
        _missing_rights(self._connection, table)
        self._known.add(table)


def _missing_rights(connection: PostgreSqlConnection, table: TableName) -> Sequence[str]:
    """The rights that this role lacks on a queue table; `MessageError` if it is not one."""
    found = find_table(connection, table, ["INSERT"])
    if found is None:
        raise QueueNotFoundError(f"There is no queue table {table}")
    absent = column_names(POSTGRESQL, wrong_columns(POSTGRESQL, found.columns))
    if absent or not found.is_table:
        raise NotAQueueError(
            f"{table} is not a queue table: it lacks {absent or 'rows of its own'}"
        )
    return found.missing_rights


def _check_database(
    connection: PostgreSqlConnection, setting: str, own_queue: TableName | None
) -> None:
    if connection.row("describe_session").is_read_only:
        raise ConfigError(
            f"The session that {setting}.dsn opens is read-only",
            advice="connect to the primary server, with a role that may write",
        )
    if own_queue is None:
        return
    try:
        _missing_rights(connection, own_queue)
    except MessageError as error:
        raise ConfigError(
            f"{setting}.dsn does not lead to the endpoint's queues: {error}",
            advice="correct the dsn, or create the queue with the command `setup`",
        ) from error


def _check_error_queue(
    connection: PostgreSqlConnection, addresses: PostgreSqlAddresses, address: str
) -> None:
    try:
        table = addresses.parse(address)
        missing = _missing_rights(connection, table)
    except MessageError as error:
        raise ConfigError(
            f"retry.error_queue is {address!r}: {error}", advice="create it or correct the setting"
        ) from error
    if missing:
        raise ConfigError(
            f"retry.error_queue is {address!r}: the sweeper's role lacks {', '.join(missing)} on "
            f"{table}",
            advice="grant it (and USAGE on its sequence and schema)",
        )
