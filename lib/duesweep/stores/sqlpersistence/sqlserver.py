"""Timeouts of SQL persistence in SQL Server as a store."""

from dataclasses import dataclass
from typing import Any

from duesweep.drivers.sqlserver import connect
from duesweep.message import Message
from duesweep.stores.relational.timeouts import timeout_message, timeout_row
from duesweep.stores.sqlserver.indexed import IndexedTaskSession
from duesweep.stores.sqlserver.kinds import SQL_PERSISTENCE, SqlServerTableKind
from duesweep.stores.sqlserver.messages import SqlServerMessageSession
from duesweep.stores.sqlserver.statements import due_of, due_text
from duesweep.stores.sqlserver.store import SqlServerStore
from duesweep.stores.values import NewMessage
from duesweep.tombstone import micros


class SqlServerTimeoutTaskSession(IndexedTaskSession):
    """The destination is a column, and Id is indexed."""

    def _message(self, row: Any, counter: Any) -> Message:
        attempts = counter.attempts if counter else 0
        return timeout_message(str(row.message_key), micros(due_of(row.due)), row, attempts)


class SqlServerTimeoutMessageSession(SqlServerTimeoutTaskSession, SqlServerMessageSession):
    """Stores timeouts of no saga."""

    def __enter__(self) -> "SqlServerTimeoutMessageSession":
        return self

    def store(self, message: NewMessage) -> str:
        """Store a message until it is due; its key."""
        row = timeout_row(message, self._endpoint)
        due = due_text(message.due, "milliseconds")
        self._statements.execute("store_timeout", due=due, **row)
        return str(row["message_key"])


@dataclass(frozen=True, slots=True)
class SqlServerTimeoutStore(SqlServerStore):
    """A place, and the kinds of session that it opens."""

    kind: SqlServerTableKind = SQL_PERSISTENCE

    def open_task(self) -> SqlServerTimeoutTaskSession:
        """A session for one slice."""
        return SqlServerTimeoutTaskSession(connect(self.dsn, self.timeouts.task), self)

    def open_messages(self) -> SqlServerTimeoutMessageSession:
        """A session for one message at a time."""
        return SqlServerTimeoutMessageSession(connect(self.dsn, self.timeouts.task), self)
