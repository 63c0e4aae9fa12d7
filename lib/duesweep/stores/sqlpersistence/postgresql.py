"""Timeouts of SQL persistence in PostgreSQL as a store."""

from dataclasses import dataclass
from typing import Any

from duesweep.drivers.postgresql import connect
from duesweep.message import Message
from duesweep.stores.postgresql.kinds import SQL_PERSISTENCE, PostgreSqlTableKind
from duesweep.stores.postgresql.messages import PostgreSqlMessageSession
from duesweep.stores.postgresql.store import PostgreSqlStore
from duesweep.stores.postgresql.task import PostgreSqlTaskSession
from duesweep.stores.sqlpersistence.timeouts import new_row, timeout_message
from duesweep.stores.values import NewMessage


class PostgreSqlTimeoutTaskSession(PostgreSqlTaskSession):
    """The destination is a column."""

    def _message(self, row: Any, counter: Any) -> Message:
        attempts = counter.attempts if counter else 0
        return timeout_message(row.id, row.due_us, row, attempts)


class PostgreSqlTimeoutMessageSession(PostgreSqlTimeoutTaskSession, PostgreSqlMessageSession):
    """Stores timeouts of no saga."""

    def __enter__(self) -> "PostgreSqlTimeoutMessageSession":
        return self

    def store(self, message: NewMessage) -> str:
        """Store a message until it is due; its key."""
        row = new_row(message, self._endpoint)
        self._statements.execute("store_timeout", due=message.due, **row)
        return str(row["message_key"])


@dataclass(frozen=True, slots=True)
class PostgreSqlTimeoutStore(PostgreSqlStore):
    """A place, and the kinds of session that it opens."""

    kind: PostgreSqlTableKind = SQL_PERSISTENCE

    def open_task(self) -> PostgreSqlTimeoutTaskSession:
        """A session for one slice."""
        return PostgreSqlTimeoutTaskSession(connect(self.dsn, self.timeouts.task), self)

    def open_messages(self) -> PostgreSqlTimeoutMessageSession:
        """A session for one message at a time."""
        return PostgreSqlTimeoutMessageSession(connect(self.dsn, self.timeouts.task), self)
