"""A session for one message at a time on a store in SQL Server."""

from collections.abc import Sequence
from datetime import UTC, datetime

from duesweep.core.message import Message
from duesweep.core.outcome import Failed
from duesweep.drivers.sqlserver.binding import bound_text, due_of, due_text
from duesweep.errors import DeliveryFailedError
from duesweep.stores.kinds import store_row
from duesweep.stores.sqlserver.task import SqlServerTaskSession
from duesweep.stores.values import NewMessage

_EVER = datetime.min.replace(tzinfo=UTC)


class SqlServerMessageSession(SqlServerTaskSession):
    """A claim of one, without a sweep."""

    def __enter__(self) -> "SqlServerMessageSession":
        return self

    def store(self, message: NewMessage) -> str:
        """Store a message until it is due; its key."""
        row = self._kind.new_row(message, self._endpoint)
        due = due_text(message.due, "milliseconds")
        return store_row(self._statements, self._kind, {"due": due, **row})

    def fetch_next_due(self) -> Message | None:
        """The message that has been due for the longest and is eligible, locked."""
        for row in self._statements.rows("fetch_next_due", source=self.source):
            key = str(row.message_key)
            self._claimed.add([row])
            return self._message(row, self._account.read_attempts([key]).get(key))
        return None

    def remove(self, message: Message) -> bool:
        """Remove a message; False where it is gone already."""
        is_removed = self._is_there(message) and bool(self._remove([message]))
        self._account.clear_attempts([message.key])
        return is_removed

    def raise_failure_count(self, message: Message) -> bool:
        """Count a failure for a message; False where it is gone already."""
        if not self._is_there(message):
            return False
        self._account.raise_attempts(
            [Failed(message, DeliveryFailedError("It was not delivered"), 0)]
        )
        return True

    def next_due(self) -> datetime | None:
        """When the next message is or was due."""
        due: str | None = self._statements.row("next_due", since=bound_text(_EVER)).due
        return None if due is None else due_of(due)

    def _is_there(self, message: Message) -> bool:
        row = self._claimed.row(message)
        if row is None:
            return False
        found: Sequence[object] = self._statements.rows(
            "find_message", message_key=message.key, due=row.due
        )
        return bool(found)
