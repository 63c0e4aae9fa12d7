"""Queue tables of the PostgreSQL transport."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from duesweep.address import PostgreSqlAddresses, TableName
from duesweep.drivers.postgresql import TASK_LIMITS, Connection, connect
from duesweep.errors import (
    ConfigError,
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

    def check(self, address: str) -> None:
        """Raise `ConfigError` unless `address` names a queue table."""
        with connect(self.dsn or self.store_dsn, TASK_LIMITS) as connection:
            try:
                PostgreSqlQueueSession(connection, self.addresses).resolve(address)
            except MessageError as error:
                raise ConfigError(
                    f"retry.error_queue is {address!r}: {error}; create it or correct the setting"
                ) from error


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
                    ((message.headers_text, message.body) for message in messages),
                )
        except MessageError as error:
            if isinstance(error, RefusedMessageError) and len(messages) > 1:
                half = len(messages) // 2
                # Both under one savepoint: if the table takes nothing for the second half, the
                # first must not stay behind a group that counts as not delivered.
                with self._savepoint():
                    refused = self.deliver(destination, messages[:half])
                    return refused | self.deliver(destination, messages[half:])
            return dict.fromkeys((message.key for message in messages), error)
        return {}

    def commit(self) -> None:
        """The store's transaction commits for both."""

    def _savepoint(self) -> AbstractContextManager[None]:
        return self._connection.transaction()

    def _look_again(self, table: TableName) -> None:
        rows = self._connection.rows(
            "describe_table", {}, schema=table.schema, table=table.table, rights=["INSERT"]
        )
        if not rows:
            raise QueueNotFoundError(f"There is no queue table {table}")
        names = {column.split(" ", 1)[0] for column in rows[0].columns}
        absent = set(_TYPED_COLUMNS) - set(rows[0].columns) | set(_NAMED_COLUMNS) - names
        if absent or rows[0].kind not in {"r", "p"}:
            lacks = ", ".join(sorted(absent)) or "rows of its own"
            raise NotAQueueError(f"{table} is not a queue table: it lacks {lacks}")
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
