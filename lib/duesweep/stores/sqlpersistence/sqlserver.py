"""Timeouts of SQL persistence in SQL Server as a store."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from duesweep.drivers.sqlserver import connect
from duesweep.errors import Problem
from duesweep.message import Message
from duesweep.stores.relational.destinations import DestinationColumn
from duesweep.stores.sqlpersistence.timeouts import SETTINGS, new_row, timeout_message
from duesweep.stores.sqlserver.driver import SqlServerDriverSession
from duesweep.stores.sqlserver.indexed import IndexedTaskSession
from duesweep.stores.sqlserver.location import SqlServerShape
from duesweep.stores.sqlserver.messages import SqlServerMessageSession
from duesweep.stores.sqlserver.statements import due_of, due_text
from duesweep.stores.sqlserver.store import SqlServerStore
from duesweep.stores.values import NewMessage
from duesweep.tombstone import micros

TIMEOUT_SHAPE = SqlServerShape(
    columns={
        "Id": "uniqueidentifier",
        "Destination": "nvarchar",
        "SagaId": "uniqueidentifier",
        "State": "varbinary",
        "Time": "datetime",
        "Headers": "nvarchar",
        "PersistenceVersion": "varchar",
    },
    due="Time",
    create=None,
    settings=SETTINGS,
    index="Index_Time",
    lowest_key=str(UUID(int=0)),
    names={
        "due": "[Time]",
        "key": "[Id]",
        "key_type": "uniqueidentifier",
        # The server writes it in capitals, nobody else does.
        "key_text": "LOWER(CONVERT(nvarchar(250), m.[Id]))",
        "collate": "",
        "body": "[State]",
        "destination": "m.[Destination]",
        "retry_count": "0",
    },
)


class SqlServerTimeoutTaskSession(IndexedTaskSession):
    """The destination is a column, and Id is indexed."""

    def _message(self, row: Any, counter: Any) -> Message:
        attempts = counter.attempts if counter else 0
        return timeout_message(str(row.message_key), micros(due_of(row.due)), row, attempts)


class SqlServerTimeoutDriverSession(SqlServerDriverSession, DestinationColumn):
    """As on any SQL Server; only that the destination is a column, and Time may be NULL."""

    def notices(self) -> Sequence[Problem]:
        """Messages without a Time, which are never due."""
        return self._timeless()


class SqlServerTimeoutMessageSession(SqlServerTimeoutTaskSession, SqlServerMessageSession):
    """Stores timeouts of no saga."""

    def __enter__(self) -> "SqlServerTimeoutMessageSession":
        return self

    def store(self, message: NewMessage) -> str:
        """Store a message until it is due; its key."""
        row = new_row(message, self._endpoint)
        due = due_text(message.due, "milliseconds")
        self._statements.execute("store_timeout", due=due, **row)
        return str(row["message_key"])


@dataclass(frozen=True, slots=True)
class SqlServerTimeoutStore(SqlServerStore):
    """A place, and the kinds of session that it opens."""

    shape: SqlServerShape = TIMEOUT_SHAPE

    @property
    def own_queue(self) -> str:
        """The endpoint's own queue, in whatever transport."""
        return self.addresses.endpoint

    def open_task(self) -> SqlServerTimeoutTaskSession:
        """A session for one slice."""
        return SqlServerTimeoutTaskSession(connect(self.dsn, self.timeouts.task), self)

    def open_driver(self) -> SqlServerTimeoutDriverSession:
        """A session for the driver."""
        return SqlServerTimeoutDriverSession(connect(self.dsn, self.timeouts.driver), self)

    def open_messages(self) -> SqlServerTimeoutMessageSession:
        """A session for one message at a time."""
        return SqlServerTimeoutMessageSession(connect(self.dsn, self.timeouts.task), self)
