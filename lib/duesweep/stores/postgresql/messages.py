"""A session for one message at a time on a PostgreSQL store."""

from datetime import datetime

from duesweep.core.message import Message
from duesweep.core.outcome import Failed
from duesweep.drivers.postgresql.session import PostgreSqlSession
from duesweep.errors import DeliveryFailedError
from duesweep.stores.dialect import Location
from duesweep.stores.kinds import store_row
from duesweep.stores.postgresql.task import PostgreSqlTaskSession, instant_values
from duesweep.stores.values import Horizon, NewMessage
from duesweep.stores.zone import horizon_in, zone_of

# Before all times.
_EVER = "-infinity"


class PostgreSqlMessageSession(PostgreSqlTaskSession):
    """Stores and compares Due in the writers' time zone, as the transport does."""

    def __init__(self, connection: PostgreSqlSession, store: Location) -> None:
        super().__init__(connection, store)
        self._zone = zone_of(connection, store)

    def __enter__(self) -> "PostgreSqlMessageSession":
        return self

    def store(self, message: NewMessage) -> str:
        """Store a message until it is due; its key."""
        row = self._kind.new_row(message, self._endpoint)
        with self.transaction():
            self._statements.row("set_zone", zone=self._zone)
            return store_row(self._statements, self._kind, {"due": message.due, **row})

    def fetch_next_due(self) -> Message | None:
        """The message that has been due for the longest and is eligible, locked."""
        horizon = self._horizon()
        for row in self._statements.rows(
            "fetch_next_due",
            horizon=horizon.before,
            source=self.source,
            **instant_values(horizon),
        ):
            return self._message(row, self._account.read_attempts([row.id]).get(row.id))
        return None

    def remove(self, message: Message) -> bool:
        """Remove a message; False where it is gone already."""
        is_removed = bool(self._remove([message]))
        self._account.clear_attempts([message.key])
        return is_removed

    def raise_failure_count(self, message: Message) -> bool:
        """Count a failure for a message; False where it is gone already."""
        if not self._statements.rows("find_message", key=message.key):
            return False
        self._account.raise_attempts(
            [Failed(message, DeliveryFailedError("It was not delivered"), 0)]
        )
        return True

    def next_due(self) -> datetime | None:
        """When the next message is or was due."""
        due: datetime | None = self._statements.row("next_due", since=_EVER, zone=self._zone).due
        return due

    def _horizon(self) -> Horizon:
        return horizon_in(self._zone, self._statements)
