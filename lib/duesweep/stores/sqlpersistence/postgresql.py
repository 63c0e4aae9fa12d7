"""Timeouts of SQL persistence in PostgreSQL as a store."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from duesweep.drivers.postgresql import connect
from duesweep.errors import Problem
from duesweep.message import Message
from duesweep.stores.postgresql.driver import PostgreSqlDriverSession
from duesweep.stores.postgresql.location import PostgreSqlShape
from duesweep.stores.postgresql.messages import PostgreSqlMessageSession
from duesweep.stores.postgresql.store import PostgreSqlStore
from duesweep.stores.postgresql.task import PostgreSqlTaskSession
from duesweep.stores.relational.destinations import DestinationColumn
from duesweep.stores.sqlpersistence.timeouts import SETTINGS, new_row, timeout_message
from duesweep.stores.values import NewMessage

TIMEOUT_SHAPE = PostgreSqlShape(
    columns={
        "Id": "uuid",
        "Destination": "character varying",
        "SagaId": "uuid",
        "State": "bytea",
        "Time": "timestamp without time zone",
        "Headers": "text",
        "PersistenceVersion": "character varying",
    },
    due="Time",
    time_zone="UTC",
    create=None,
    settings=SETTINGS,
    names={
        "id": '"Id"',
        "headers": '"Headers"',
        "body": '"State"',
        "due": '"Time"',
        "due_type": "timestamp",
        "utc": " AT TIME ZONE 'UTC'",
        "destination": 'd."Destination"',
    },
)


class PostgreSqlTimeoutTaskSession(PostgreSqlTaskSession):
    """The destination is a column."""

    def _message(self, row: Any, counter: Any) -> Message:
        attempts = counter.attempts if counter else 0
        return timeout_message(row.id, row.due_us, row, attempts)


class PostgreSqlTimeoutDriverSession(PostgreSqlDriverSession, DestinationColumn):
    """As on any PostgreSQL; only that the destination is a column, and Time may be NULL."""

    def notices(self) -> Sequence[Problem]:
        """Messages without a Time, which are never due."""
        return self._timeless()


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

    shape: PostgreSqlShape = TIMEOUT_SHAPE

    @property
    def own_queue(self) -> str:
        """The endpoint's own queue, in whatever transport."""
        return self.addresses.endpoint

    def open_task(self) -> PostgreSqlTimeoutTaskSession:
        """A session for one slice."""
        return PostgreSqlTimeoutTaskSession(connect(self.dsn, self.timeouts.task), self)

    def open_driver(self) -> PostgreSqlTimeoutDriverSession:
        """A session for the driver."""
        return PostgreSqlTimeoutDriverSession(connect(self.dsn, self.timeouts.driver), self)

    def open_messages(self) -> PostgreSqlTimeoutMessageSession:
        """A session for one message at a time."""
        return PostgreSqlTimeoutMessageSession(connect(self.dsn, self.timeouts.task), self)
