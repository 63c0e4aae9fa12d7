"""Queue tables of the PostgreSQL transport."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from duesweep.address import PostgreSqlAddresses, TableName
from duesweep.drivers.postgresql import TASK_LIMITS, Connection, connect
from duesweep.errors import (
    ConfigError,
    DestinationError,
    MessageError,
    NotAQueueError,
    QueueNotFoundError,
    RefusedMessageError,
)
from duesweep.message import Message
from duesweep.queues.base import Destination
from duesweep.stores.base import TaskSession
from duesweep.stores.postgresql.task import PostgreSqlTaskSession

_TYPED_COLUMNS = ["id uuid", "headers text", "body bytea"]
# Whose types vary: seq is widened to bigint where 32 bits are used up.
_NAMED_COLUMNS = ["expires", "seq"]


@dataclass(frozen=True, slots=True)
class PostgreSqlQueue:
    """All queue tables of one database. `dsn` None: the store's own database and transaction."""

    addresses: PostgreSqlAddresses
    store_dsn: str = field(repr=False)
    dsn: str | None = field(default=None, repr=False)

    @contextmanager
    def open(self, store: TaskSession) -> Iterator["PostgreSqlQueueSession"]:
        """A session in the store's transaction, or on a connection of its own."""
        if self.dsn is None:
            assert isinstance(store, PostgreSqlTaskSession)  # wiring pairs the two
            yield PostgreSqlQueueSession(store.connection, self.addresses)
        else:
            with connect(self.dsn, TASK_LIMITS) as connection:
                yield _OwnTransactionSession(connection, self.addresses)

    def check(self, error_queue: str | None) -> None:
        """Raise `ConfigError` unless a database of their own is the endpoint's queues', and
        `error_queue` names a queue table that this role may fill.
        """
        if self.dsn is None and error_queue is None:
            return  # the store has been asked already
        with self._connect() as connection:
            if self.dsn is not None:
                _check_database(connection, self.addresses.own_queue)
            if error_queue is not None:
                _check_error_queue(connection, self.addresses, error_queue)

    def _connect(self) -> Connection:
        if self.dsn is None:
            return connect(self.store_dsn, TASK_LIMITS)
        try:
            return connect(self.dsn, TASK_LIMITS)
        except ConfigError as error:
            raise ConfigError(f"queues.default.dsn: {error}") from error


class PostgreSqlQueueSession:
    """Delivers by binary COPY under savepoints of the store's transaction."""

    def __init__(self, connection: Connection, addresses: PostgreSqlAddresses) -> None:
        self._connection = connection
        self._addresses = addresses
        # Known before anything is claimed, so that no look-up lengthens a claim.
        self._known = {
            TableName(row.schema, row.table)
            for row in connection.rows(
                "queue_tables", {}, typed=_TYPED_COLUMNS, named=_NAMED_COLUMNS
            )
        }

    def resolve(self, address: str | None) -> TableName:
        """The queue table that `address` names."""
        table = self._addresses.parse(address)
        if table not in self._known:
            self._look_again(table)
        return table

    def deliver(
        self, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        """Deliver the group; where a row spoils it, by halves, so that it costs only itself."""
        assert isinstance(destination, TableName)  # ours, from resolve
        try:
            with self._savepoint():
                self._connection.copy_messages(
                    destination,
                    [(message.headers_text, message.body) for message in messages],
                )
        except RefusedMessageError as error:
            if len(messages) == 1:
                return {messages[0].key: error}
            half = len(messages) // 2
            # Both under one savepoint: if the table takes nothing for the second half, the first
            # must not stay behind a group that counts as not delivered.
            with self._savepoint():
                refused = self.deliver(destination, messages[:half])
                return refused | self.deliver(destination, messages[half:])
        except DestinationError:
            gone = self._why_gone(destination)
            if gone is None:
                raise
            return dict.fromkeys((message.key for message in messages), gone)
        return {}

    def commit(self) -> None:
        """The store's transaction commits for both."""

    def rollback(self) -> None:
        """The store's transaction is rolled back for both."""

    def _savepoint(self) -> AbstractContextManager[None]:
        return self._connection.transaction()

    def _why_gone(self, table: TableName) -> MessageError | None:
        """The messages' fault where a table that was a queue's is none any more."""
        self._known.discard(table)
        try:
            self._look_again(table)
        except MessageError as error:
            return error
        return None

    def _look_again(self, table: TableName) -> None:
        _missing_rights(self._connection, table)
        self._known.add(table)


class _OwnTransactionSession(PostgreSqlQueueSession):
    """Delivers in a transaction of its own, committed before the store's: at least once."""

    def deliver(
        self, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        """Deliver in the transaction that `commit` ends."""
        self._connection.begin()
        return super().deliver(destination, messages)

    def commit(self) -> None:
        """Commit what was delivered since the last time."""
        self._connection.commit()

    def rollback(self) -> None:
        """Roll back what was delivered since the last time."""
        self._connection.rollback()


def _missing_rights(connection: Connection, table: TableName) -> Sequence[str]:
    """What this role lacks to fill a queue table; a `MessageError` where `table` is none."""
    rows = connection.rows(
        "describe_table", {}, schema=table.schema, table=table.table, rights=["INSERT"]
    )
    if not rows:
        raise QueueNotFoundError(f"There is no queue table {table}")
    names = {column.split(" ", 1)[0] for column in rows[0].columns}
    absent = set(_TYPED_COLUMNS) - set(rows[0].columns) | set(_NAMED_COLUMNS) - names
    if absent or rows[0].kind not in {"r", "p"}:
        lacks = ", ".join(sorted(absent)) or "rows of its own"
        raise NotAQueueError(f"{table} is not a queue table: it lacks {lacks}")
    return list(rows[0].missing_rights)


def _check_database(connection: Connection, own_queue: TableName) -> None:
    if connection.row("describe_session", {}).is_read_only:
        raise ConfigError(
            "The session that queues.default.dsn opens is read-only; connect to the primary "
            "server, with a role that may write"
        )
    try:
        _missing_rights(connection, own_queue)
    except MessageError as error:
        raise ConfigError(
            f"queues.default.dsn does not lead to the endpoint's queues: {error}; correct the dsn, "
            "or create the queue with the command `setup`"
        ) from error


def _check_error_queue(
    connection: Connection, addresses: PostgreSqlAddresses, address: str
) -> None:
    try:
        table = addresses.parse(address)
        missing = _missing_rights(connection, table)
    except MessageError as error:
        raise ConfigError(
            f"retry.error_queue is {address!r}: {error}; create it or correct the setting"
        ) from error
    if missing:
        raise ConfigError(
            f"retry.error_queue is {address!r}: the sweeper's role lacks {', '.join(missing)} on "
            f"{table}; grant it (and USAGE on its sequence and schema)"
        )
