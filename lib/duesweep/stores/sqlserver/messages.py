"""Sessions for one message at a time on stores in SQL Server."""

from collections.abc import Sequence
from datetime import datetime

from duesweep.errors import DeliveryFailedError
from duesweep.headers import json as headers_json
from duesweep.message import Message
from duesweep.outcome import Failed
from duesweep.stores.sqlserver.statements import due_of, due_text
from duesweep.stores.sqlserver.task import SqlServerTaskSession
from duesweep.stores.values import NewMessage


class OneByOne(SqlServerTaskSession):
    """What both stores have in common: a claim of one, without a sweep."""

    def fetch_next_due(self) -> Message | None:
        """The message that has been due for the longest and is eligible, locked."""
        for row in self._statements.rows("fetch_next_due", source=self._source):
            key = str(row.message_key)
            self._claimed[key] = row
            return self._due_message(row, self._read_attempts([key]).get(key))
        return None

    def remove(self, message: Message) -> bool:
        """Remove a message; False where it is gone already."""
        is_removed = self._is_there(message) and bool(self._remove([message]))
        self._clear_attempts([message.key])
        return is_removed

    def raise_failure_count(self, message: Message) -> bool:
        """Count a failure for a message; False where it is gone already."""
        if not self._is_there(message):
            return False
        self._raise_attempts([Failed(message, DeliveryFailedError("It was not delivered"), 0)])
        return True

    def next_due(self) -> datetime | None:
        """When the next message is or was due."""
        due: str | None = self._statements.row("next_due").due
        return None if due is None else due_of(due)

    def _is_there(self, message: Message) -> bool:
        row = self._claimed.get(message.key)
        if row is None:
            return False
        found: Sequence[object] = self._statements.rows(
            "find_message", message_key=message.key, due=row.due
        )
        return bool(found)


class SqlServerMessageSession(OneByOne):
    """On the SQL Server transport's delayed table."""

    def __enter__(self) -> "SqlServerMessageSession":
        return self

    def store(self, message: NewMessage) -> str:
        """Store a message until it is due; its key."""
        row = self._statements.row(
            "store_message",
            headers=headers_json.write(
                headers_json.addressed(message.headers, message.destination)
            ),
            body=message.body,
            due=due_text(message.due, "milliseconds"),
        )
        return str(row.message_key)
