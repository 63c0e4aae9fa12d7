"""What a task's session on SQL Server knows of the rows that it claimed, and claims no more."""

from collections.abc import Iterable, Sequence
from typing import Any

from duesweep.core.message import Message
from duesweep.stores.values import Excluded


class ClaimedRows:
    """The rows of the claim under way, by key; their Dues, to the tick, are what finds them again.
    Messages that are excluded stay so until they are included or the session ends.
    """

    def __init__(self) -> None:
        self._rows: dict[str, Any] = {}
        # By Due, since a Due is what leads to them.
        self._excluded: dict[str, set[str]] = {}
        self._failing: list[Message] = []

    def begin(self) -> None:
        """Forget the claim before."""
        self._rows, self._failing = {}, []

    def add(self, rows: Iterable[Any]) -> None:
        """Remember rows that were claimed."""
        self._rows.update((str(row.message_key), row) for row in rows)

    def row(self, message: Message) -> Any:
        """The row of a claimed message; None where it was not claimed here."""
        return self._rows.get(message.key)

    def due(self, message: Message) -> str:
        """The Due of a claimed message, to the tick."""
        return str(self._rows[message.key].due)

    def headers(self, message: Message) -> Any:
        """The headers of a claimed message as they are stored."""
        return self._rows[message.key].headers

    def by_due(self, messages: Sequence[Message] | None = None) -> dict[str, set[str]]:
        """The keys of these messages, or of all that are claimed, by their Dues."""
        keys = self._rows if messages is None else [message.key for message in messages]
        found: dict[str, set[str]] = {}
        for key in keys:
            found.setdefault(self._rows[key].due, set()).add(key)
        return found

    def exclude(self, messages: Iterable[Excluded]) -> None:
        """Remember their keys: their Due, the claim key, leads to them again."""
        for due, key, _ in messages:
            self._excluded.setdefault(due, set()).add(key)

    def include(self, messages: Iterable[Excluded]) -> None:
        """Forget their keys."""
        for due, key, _ in messages:
            self._excluded.get(due, set()).discard(key)

    def excluded(self, dues: Iterable[str]) -> set[str]:
        """The keys of the messages of these Dues that are excluded."""
        found = (self._excluded.get(due, ()) for due in set(dues))
        return {key for keys in found for key in keys}

    @property
    def excluded_count(self) -> int:
        """How many messages are excluded."""
        return sum(map(len, self._excluded.values()))

    def fail(self, messages: Iterable[Message]) -> None:
        """Remember that these fail in the transaction under way."""
        self._failing += messages

    def exclude_failed(self) -> None:
        """Exclude what failed in a transaction that is committed."""
        self.exclude(Excluded(self.due(message), message.key) for message in self._failing)
        self._failing = []
