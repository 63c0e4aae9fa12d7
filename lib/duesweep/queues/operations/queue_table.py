"""One queue table on one session: create, send, receive, peek, purge."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from duesweep.core.errors import ConfigError, NotAQueueError, QueueNotFoundError, StoreError
from duesweep.core.headers import FORWARD_DESTINATION, Headers, write_json
from duesweep.core.message import OutgoingMessage, ReceivedMessage
from duesweep.core.times import Parts, split_duration
from duesweep.queues.base import Destination
from duesweep.queues.operations.base import QueueStatements
from duesweep.queues.tables import SHARED_COLUMNS

if TYPE_CHECKING:
    from duesweep.queues.operations.base import QueueDialect


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


class QueueTable:
    """A queue of the transport. All methods that touch rows raise `QueueNotFoundError` where there
    is no such table, and `NotAQueueError` where it is another kind of table.
    """

    def __init__(
        self,
        dialect: "QueueDialect",
        destination: Destination,
        known: dict[Destination, QueueStatements],
    ) -> None:
        self.destination = destination
        self._dialect = dialect
        self._statements = dialect.named({"queue": destination})
        # Shared by the session: the statements for each table, chosen by its columns.
        self._known = known

    def create(self, *, readable_body: bool = False) -> None:
        """Create the table unless it exists. Several processes may do so at once. `readable_body`
        adds a column in which people can read bodies.
        """
        self._dialect.create("create_queue", "queue", self.destination)
        # Check first: even an ALTER that changes nothing waits for all other users of the table.
        if readable_body and _BODY_STRING not in self._dialect.columns(self.destination):
            self._dialect.create("add_body_string", "queue", self.destination)
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
        statement = self._own_statements().receive
        while True:
            with self._dialect.transaction():
                row = self._receive_row(statement)
                if row is None or not _is_expired(row):
                    yield row and _read_message(row)
                    return

    def peek(self, batch_size: int = PEEK_BATCH_SIZE) -> int:
        """How many messages are not locked, up to `batch_size`. On PostgreSQL this is an estimate,
        which is 0 only if there are none.
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
        """Raise unless this is a queue table. Asks the database once in each session."""
        self._own_statements()

    def _own_statements(self) -> QueueStatements:
        if self.destination not in self._known:
            columns = self._dialect.columns(self.destination)
            if not columns:
                raise QueueNotFoundError(
                    f"There is no queue table {self.destination}",
                    advice="correct the address, or create it",
                )
            if absent := SHARED_COLUMNS - columns:
                raise NotAQueueError(
                    f"{self.destination} is not a queue table: it lacks {', '.join(sorted(absent))}"
                )
            self._known[self.destination] = self._dialect.statements_for(columns)
        return self._known[self.destination]

    def _append(
        self, message_id: UUID, headers_text: str, body: bytes | None, **lifetime: int | None
    ) -> None:
        row = {"id": message_id, "headers": headers_text, "body": body, **lifetime}
        try:
            self._statements.execute(self._own_statements().send, **row)
        except StoreError:
            # The table's columns may have changed; the next attempt reads them again.
            self._known.pop(self.destination, None)
            raise

    def _send_later(self, message: OutgoingMessage, delay: Parts) -> None:
        delayed = self._find_delayed_table()
        headers = _set_destination(
            message.headers, self.destination, self._dialect.addresses.own_queue
        )
        with self._dialect.writers_zone():
            self._dialect.named({"delayed": delayed}).execute(
                _SEND_LATER,
                headers=write_json(headers),
                body=message.body,
                **delay._asdict(),
            )

    def _find_delayed_table(self) -> Destination:
        delayed = self._dialect.delayed
        if delayed is None:
            raise ConfigError(
                "A delayed message cannot be sent from here: the endpoint's delayed table is in "
                "another database",
                advice="send it without a delay, or through the store's own database",
            )
        if delayed not in self._known:
            if not self._dialect.columns(delayed):
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


def _set_destination(headers: Headers, destination: Destination, own_queue: Destination) -> Headers:
    """`headers` with `destination` in the last one, unless that is the endpoint's own queue."""
    others = {n: value for n, value in headers.items() if n != FORWARD_DESTINATION}
    return others if destination == own_queue else others | {FORWARD_DESTINATION: str(destination)}


def _is_expired(row: Any) -> bool:
    return row.expires is not None and row.expires <= row.utc_now


def _read_message(row: Any) -> ReceivedMessage:
    body = None if row.body is None else bytes(row.body)
    # Only some tables have these columns.
    columns = {name: getattr(row, column, None) for name, column in _HEADER_COLUMNS.items()}
    return ReceivedMessage.read(UUID(str(row.id)), row.headers, body, columns)
