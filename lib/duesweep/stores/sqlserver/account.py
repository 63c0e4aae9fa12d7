"""What a task on SQL Server writes down: counters, and messages that are given up."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from duesweep.drivers.sqlserver import SqlServerConnection, key_list
from duesweep.errors import MessageError, stack_of, storable, type_name
from duesweep.message import Message
from duesweep.outcome import Exhausted, Failed
from duesweep.stores.relational.summary import packed
from duesweep.stores.relational.task import RelationalTaskSession, storable_or_none
from duesweep.stores.sqlserver.statements import SqlServerStatements
from duesweep.stores.values import SweepRun


class SqlServerAccount(RelationalTaskSession):
    """The part of a task's session that counts and journals; `names` are what statements have in
    braces.
    """

    def __init__(
        self, connection: SqlServerConnection, names: dict[str, str], source: str, endpoint: str
    ) -> None:
        super().__init__(SqlServerStatements(connection, names), source, endpoint)
        self.connection = connection
        self._names = names
        # By Due, since a Due is what leads to them.
        self._excluded: dict[str, set[str]] = {}
        # Rows of the claim under way, by key: their Due to the tick, and headers as stored.
        self._claimed: dict[str, Any] = {}
        self._failing: list[Message] = []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction; nested, a savepoint."""
        is_batch = not self.connection.is_in_transaction
        with super().transaction():
            yield
        if is_batch:
            # A message that becomes eligible again within this slice could consume the claim key of
            # another. Only after the commit: a batch that was rolled back is claimed again.
            self.exclude(self._failing)
            self._failing = []

    def exclude(self, messages: Sequence[Message]) -> None:
        """Remember their keys: their Due leads to them again."""
        for message in messages:
            due = self._claimed[message.key].due
            self._excluded.setdefault(due, set()).add(message.key)

    def _stored(self, message: Message) -> tuple[str | None, str]:
        """The headers of a claimed message as JSON, where they can be read, and as they were
        stored.
        """
        text: str = self._claimed[message.key].headers or ""
        return (None if isinstance(message.headers, MessageError) else text), text

    def _clear_attempts(self, keys: Sequence[str]) -> None:
        self._statements.execute("clear_attempts", source=self._source, **listed(keys))

    def _late(self, late_ms: Sequence[int]) -> object:
        return packed(late_ms)

    def _raise_attempts(self, failed: Sequence[Failed]) -> None:
        self._failing += [outcome.message for outcome in failed]
        self.connection.execute_many(
            "raise_attempts", self._names, [self._failure(outcome) for outcome in failed]
        )

    def _failure(self, failed: Failed) -> dict[str, object]:
        message = failed.message
        seconds, milliseconds = divmod(int(failed.retry_seconds * 1_000), 1_000)
        return {
            "source": self._source,
            "message_key": message.key,
            "message_id": storable_or_none(message.message_id),
            "destination": self._destination(message),
            "due": self._claimed[message.key].due,
            "attempts": message.attempts + 1,
            "retry_seconds": seconds,
            "retry_ms": milliseconds,
            "error_class": type_name(failed.error),
            "error_text": storable(str(failed.error)),
        }

    def _journal_exhausted(
        self, run: SweepRun, slice_number: int, exhausted: Sequence[Exhausted], server_us: int
    ) -> None:
        for outcome in exhausted:
            message, error = outcome.message, outcome.error
            headers, headers_text = self._stored(message)
            self._statements.execute(
                "journal_exhausted",
                source=self._source,
                sweep_id=run.sweep_id,
                slice=slice_number,
                message_key=message.key,
                message_id=storable_or_none(message.message_id),
                message_type=storable_or_none(message.message_type),
                destination=self._destination(message),
                queue=outcome.queue,
                due_us=message.instant_us,
                dispatched_us=server_us,
                attempts=message.attempts + 1,
                error_class=type_name(error),
                error_text=storable(str(error)),
                stack=stack_of(error),
                headers=headers,
                headers_text=headers_text,
                body=message.body,
            )


def listed(keys: Iterable[str]) -> dict[str, object]:
    """Keys as the values of a statement."""
    return listed_as("keys", keys)


def listed_as(name: str, keys: Iterable[str]) -> dict[str, object]:
    """Keys as the values of a statement that calls them `name`."""
    text, separator = key_list(keys)
    return {name: text, "separator": separator}
