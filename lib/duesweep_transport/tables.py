"""Queue tables as NServiceBus's transports use them: create, send, receive, peek, purge; and the
table of subscriptions. On one session, in transactions that the caller may open.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from duesweep.core.address import Addresses
from duesweep.core.errors import (
    ConfigError,
    NotAQueueError,
    QueueNotFoundError,
    StoreError,
    refuse_dropped,
)
from duesweep.core.finding import Check, Finding, refuse
from duesweep.core.headers import set_forward_destination, write_json
from duesweep.core.policy import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.statements import FoundTable, Session
from duesweep.queues.base import Destination
from duesweep.queues.tables import SHARED_COLUMNS, SUBSCRIPTION_TABLE
from duesweep.stores.dialect import Dialect, Location, WantedTable
from duesweep_transport.values import OutgoingMessage, Parts, ReceivedMessage, split_duration

PURGE_BATCH_SIZE = 1_000
PEEK_BATCH_SIZE = 100
# From this number on SQL Server replaces a statement's row locks by one table lock.
_ESCALATION = 5_000
_BODY_STRING = "bodystring"
_SEND_LATER = "send_later"
_SECOND = timedelta(seconds=1)
# Headers that senders of version 1 of the SQL Server transport put into columns.
_HEADER_COLUMNS = {
    "NServiceBus.CorrelationId": "correlation_id",
    "NServiceBus.ReplyToAddress": "reply_to_address",
}
_OF_VERSION_1 = {"correlationid", "replytoaddress"}
# The length of the columns of a table of subscriptions.
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class QueueStatements:
    """The names of the statements that send to a queue table and receive from it, and what hides
    rows of it.
    """

    send: str = "send"
    receive: str = "receive"
    hidden: Finding | None = None


class TransportSession:
    """One session on the queue tables of a database, and on the endpoint's delayed table, which is
    `store`'s, if it is there too; not thread-safe.
    """

    def __init__(
        self, connection: Session, dialect: Dialect, addresses: Addresses, store: Location | None
    ) -> None:
        self.addresses = addresses
        self.delayed: Destination | None = None if store is None else store.delayed
        # The statements for each table, chosen by its columns.
        self.known: dict[Destination, QueueStatements] = {}
        self._connection, self._dialect, self._store = connection, dialect, store
        self._zone: str | None = None

    def queue(self, address: str | None) -> "QueueTable":
        """The queue at `address`, even if it does not exist; None is the endpoint's own.

        Raises `UnreadableAddressError` for an address that can name no table.
        """
        return QueueTable(self, self.addresses.parse(address))

    def subscriptions(self, table: str = SUBSCRIPTION_TABLE) -> "Subscriptions":
        return Subscriptions(self, self.addresses.parse(table))

    def transaction(self) -> AbstractContextManager[None]:
        """A transaction; nested, a savepoint."""
        return self._connection.transaction()

    def named(self, role: str, table: Any) -> Session:
        """The session's statements, with this table."""
        return self._connection.named({role: table.sql})

    def create(self, name: str, role: str, table: Any, *, is_new: bool = True) -> None:
        """Run a named statement that creates a table or, if it is not new, alters it. Several
        processes may do so at once.
        """
        tables = self._dialect.tables
        texts = [tables.creation(name, **{role: table})]
        new = [table] if is_new else []
        tables.create(self._connection, new, [([table], texts)], "the address")

    def columns(self, table: Destination) -> set[str]:
        """The columns' names, in lower case; none if there is no such table."""
        return _columns_of(self.find(table))

    def find(self, table: Destination) -> FoundTable | None:
        """The table; None if it is missing. Raises `NotAQueueError` for a view, which would run its
        owner's functions with this user's rights.
        """
        wanted = WantedTable(table, rights=("SELECT",))
        found = self._dialect.tables.find(self._connection, [wanted]).get(table)
        if found is not None and not found.is_table:
            raise NotAQueueError(f"{table} has no rows of its own: it is a view or the like")
        return found

    def refuse_dropped(self, table: str, taken: int) -> None:
        """Raise `RefusedMessageError` if the server says that a table has not taken a row."""
        if self._dialect.tables.counts_inserts:
            refuse_dropped(table, taken, 1)

    def statements_for(self, columns: set[str]) -> QueueStatements:
        """The statements for a queue table with these columns. Tables of older versions have a
        column Recoverable, which takes no NULL, and two in which senders of version 1 put values
        that others put into headers.
        """
        if not self._dialect.tables.has_older_queues:
            return QueueStatements()
        return QueueStatements(
            send="send_recoverable" if "recoverable" in columns else "send",
            receive="receive_with_columns" if columns >= _OF_VERSION_1 else "receive",
        )

    @contextmanager
    def writers_zone(self) -> Iterator[None]:
        """A transaction in the zone of the writers of the delayed table: PostgreSQL's transport
        casts Due to timestamptz in its session's zone.
        """
        if self._zone is None and self._store is not None:
            self._zone = self._dialect.zone(self._connection, self._store)
        with self._connection.transaction():
            if self._zone is None:
                yield
                return
            self._connection.row("set_zone", zone=self._zone)
            yield
            # The setting would outlive a savepoint.
            self._connection.row("set_zone", zone="UTC")


@dataclass(frozen=True, slots=True)
class Transport:
    """A database with an endpoint's queues, and with its delayed table if that is in `store`. A
    session may be idle in a transaction as long as a handler runs.
    """

    dialect: Dialect
    dsn: str = field(repr=False)
    addresses: Addresses
    store: Location | None = None
    timeouts: Timeouts = DEFAULT_TIMEOUTS

    @contextmanager
    def connect(self) -> Iterator[TransportSession]:
        with self.dialect.connect(self.dsn, self.timeouts.handler) as connection:
            yield TransportSession(connection, self.dialect, self.addresses, self.store)

    def script(self, names: Sequence[str], role: str, table: Destination) -> str:
        """The statements of these names, as `TransportSession.create` runs them for a table of this
        role, for the server's command-line tools.
        """
        tables = self.dialect.tables
        texts = [tables.creation(name, **{role: table}) for name in names]
        return tables.script(table, texts)


class QueueTable:
    """A queue of the transport. All methods that touch rows raise `QueueNotFoundError` without
    such a table, and `NotAQueueError` if it is another kind of table.
    """

    def __init__(self, session: TransportSession, destination: Destination) -> None:
        self.destination = destination
        self._session = session
        self._statements = session.named("queue", destination)
        # Shared by all queues of the session.
        self._known = session.known

    def create(self, *, readable_body: bool = False) -> None:
        """Create the table unless it exists. Several processes may do so at once. `readable_body`
        adds a column in which people can read bodies.
        """
        # Even CREATE TABLE IF NOT EXISTS takes the right to create tables.
        if not self._session.columns(self.destination):
            self._session.create("create_queue", "queue", self.destination)
        # Check first: even an ALTER that changes nothing waits for all other users of the table.
        if readable_body and _BODY_STRING not in self._session.columns(self.destination):
            self._session.create("add_body_string", "queue", self.destination, is_new=False)
        self._known.pop(self.destination, None)
        self.check()

    def send(self, message: OutgoingMessage) -> None:
        """Send the message now, or through the delayed table if it has a delay."""
        if message.delay is not None:
            self._send_later(message, split_duration(message.delay))
            return
        lifetime = message.time_to_be_received
        parts = None if lifetime is None else split_duration(lifetime)
        self._append(
            uuid4(),
            write_json(message.headers),
            message.body,
            seconds=None if lifetime is None else lifetime // _SECOND,
            milliseconds=None if parts is None else parts.milliseconds,
        )

    def append(self, message_id: UUID, headers_text: str, body: bytes | None) -> None:
        """Append a row as it is, without a check of its headers. It never expires."""
        self._append(message_id, headers_text, body, seconds=None, milliseconds=None)

    @contextmanager
    def receive(self) -> Iterator[ReceivedMessage | None]:
        """Receive the first message that is not locked, or None. When the block ends without an
        error, the message is removed for good; else it is back in its place. Expired messages
        before it are removed.

        A poison message is returned like any other. The caller has to keep it somewhere.
        """
        statement = self._visible_statements().receive
        while True:
            with self._session.transaction():
                row = self._receive_row(statement)
                if row is None or not _is_expired(row):
                    yield row and _read_message(row)
                    return

    def peek(self, batch_size: int = PEEK_BATCH_SIZE) -> int:
        """How many messages are not locked, up to `batch_size`. On PostgreSQL this is an estimate,
        which is 0 only for an empty queue.
        """
        self.check()
        (row,) = self._statements.rows("peek", batch=batch_size)
        return int(row.messages)

    def purge(self, *, expired_only: bool = False, batch_size: int = PURGE_BATCH_SIZE) -> int:
        """Remove all messages that are not locked, or only expired ones. Returns how many.

        Each batch has its own transaction, unless one is already open.
        """
        if not 1 <= batch_size < _ESCALATION:
            raise ConfigError(
                f"Batches of {batch_size} cannot be purged",
                advice=(
                    f"give a size from 1 to {_ESCALATION - 1}, below which a server locks "
                    "rows and not the whole table"
                ),
            )
        self.check()
        name = "purge_expired" if expired_only else "purge"
        purged, removed = 0, batch_size
        while removed == batch_size:
            removed = self._statements.execute(name, batch=batch_size)
            purged += removed
        return purged

    def check(self) -> None:
        """Raise unless this is a queue table whose rows can be seen. Asks the database once in each
        session.
        """
        self._visible_statements()

    def _visible_statements(self) -> QueueStatements:
        statements = self._own_statements()
        if statements.hidden is not None:
            refuse([statements.hidden])
        return statements

    def _own_statements(self) -> QueueStatements:
        if self.destination not in self._known:
            found = self._session.find(self.destination)
            columns = _columns_of(found)
            if found is None or not columns:
                raise QueueNotFoundError(
                    f"There is no queue table {self.destination}",
                    advice="correct the address, or create it",
                )
            if absent := SHARED_COLUMNS - columns:
                raise NotAQueueError(
                    f"{self.destination} is not a queue table: it lacks {', '.join(sorted(absent))}"
                )
            statements = self._session.statements_for(columns)
            self._known[self.destination] = replace(
                statements, hidden=found.fault_by(Check.ROW_SECURITY)
            )
        return self._known[self.destination]

    def _append(
        self, message_id: UUID, headers_text: str, body: bytes | None, **lifetime: int | None
    ) -> None:
        row = {"id": message_id, "headers": headers_text, "body": body, **lifetime}
        try:
            taken = self._statements.execute(self._own_statements().send, **row)
        except StoreError:
            # The table's columns may have changed; the next attempt reads them again.
            self._known.pop(self.destination, None)
            raise
        self._session.refuse_dropped(f"Queue table {self.destination}", taken)

    def _send_later(self, message: OutgoingMessage, delay: Parts) -> None:
        delayed = self._find_delayed_table()
        is_own = self.destination == self._session.addresses.own_queue
        headers = set_forward_destination(
            message.headers, None if is_own else str(self.destination)
        )
        with self._session.writers_zone():
            taken = self._session.named("delayed", delayed).execute(
                _SEND_LATER,
                headers=write_json(headers),
                body=message.body,
                **delay._asdict(),
            )
            self._session.refuse_dropped(f"The delayed table {delayed}", taken)

    def _find_delayed_table(self) -> Destination:
        delayed = self._session.delayed
        if delayed is None:
            raise ConfigError(
                "A delayed message cannot be sent from here: the endpoint's delayed table is in "
                "another database",
                advice="send it without a delay, or through the store's own database",
            )
        if delayed not in self._known:
            if not self._session.columns(delayed):
                raise ConfigError(
                    f"There is no delayed table {delayed}",
                    advice="correct store.delayed_table, or create it with the command `setup`",
                )
            self._known[delayed] = QueueStatements(send=_SEND_LATER)
        return delayed

    def _receive_row(self, statement: str) -> Any:
        try:
            rows = self._statements.rows(statement)
        except StoreError:
            self._known.pop(self.destination, None)
            raise
        return rows[0] if rows else None


def _columns_of(found: FoundTable | None) -> set[str]:
    return set() if found is None else {name.lower() for name in found.columns}


class Subscriptions:
    """One table of subscriptions on one session; a topic is a type's full name."""

    def __init__(self, session: TransportSession, table: Destination) -> None:
        self._session = session
        self._table = table
        self._statements = session.named("subscriptions", table)

    def create(self) -> None:
        """Create the table unless it exists. Several processes may do so at once."""
        if not self._session.columns(self._table):
            self._session.create("create_subscriptions", "subscriptions", self._table)

    def subscribe(self, endpoint: str, address: str, topic: str) -> None:
        """Let messages published under `topic` go to the queue at `address` for this endpoint. An
        older subscription of the endpoint to the topic is replaced.
        """
        queue_address = str(self._session.addresses.parse(address))
        names = {"endpoint": endpoint, "queue_address": queue_address, "topic": topic}
        self._check(**names)
        with self._session.transaction():
            self._statements.execute("subscribe", **names)

    def unsubscribe(self, endpoint: str, topic: str) -> bool:
        """End a subscription. Returns whether there was one."""
        self._check(endpoint=endpoint, topic=topic)
        removed = self._statements.execute("unsubscribe", endpoint=endpoint, topic=topic)
        return removed > 0

    def subscribers(self, topics: Sequence[str]) -> Sequence[str]:
        """The addresses that are subscribed to any of these topics, each once, sorted."""
        self._check(**{f"topic {topic[:20]}": topic for topic in topics})
        found = set()
        # One query for each topic. An IN list would need a statement for each number of topics. A
        # list in JSON would be compared in the collation of another database.
        for topic in topics:
            rows = self._statements.rows("list_subscribers", topic=topic)
            found |= {str(row.queue_address) for row in rows}
        return sorted(found)

    def _check(self, **names: str) -> None:
        for what, name in names.items():
            if not name.strip() or len(name) > _LONGEST_NAME:
                raise ConfigError(
                    f"The {what.replace('_', ' ')} {name!r} cannot be in a subscription",
                    advice=f"give 1 to {_LONGEST_NAME} characters",
                )
        if not self._session.columns(self._table):
            raise ConfigError(
                f"There is no table of subscriptions {self._table}",
                advice="correct its name, or create it with the command `subscriptions create`",
            )


def _is_expired(row: Any) -> bool:
    return row.expires is not None and row.expires <= row.utc_now


def _read_message(row: Any) -> ReceivedMessage:
    body = None if row.body is None else bytes(row.body)
    # Only some tables have these columns.
    columns = {name: getattr(row, column, None) for name, column in _HEADER_COLUMNS.items()}
    return ReceivedMessage.read(UUID(str(row.id)), row.headers, body, columns)
