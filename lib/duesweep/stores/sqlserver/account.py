"""What a task on SQL Server writes down: retry counters, and messages that are given up."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from duesweep.core.outcome import Exhausted, Failed
from duesweep.drivers.sqlserver.binding import key_list
from duesweep.drivers.sqlserver.session import SqlServerSession
from duesweep.errors import format_stack, make_storable, type_name
from duesweep.stores.dialect import Location
from duesweep.stores.relational.account import FEW_COUNTERS, destination_of, storable_or_none
from duesweep.stores.sqlserver.claimed import ClaimedRows
from duesweep.stores.summary import packed
from duesweep.stores.values import SweepRun


class SqlServerAccount:
    """A `BatchAccount`: a row of its own for each message. `claimed` are the rows of the session's
    claim.
    """

    def __init__(self, statements: SqlServerSession, store: Location, claimed: ClaimedRows) -> None:
        self._statements = statements
        self._kind = store.kind
        self._source = store.source
        self._endpoint = store.addresses.endpoint
        self._claimed = claimed

    def read_attempts(self, keys: Sequence[str]) -> Mapping[str, Any]:
        """The retry counters of claimed messages, by their keys; and perhaps some of others."""
        if not keys:
            return {}
        rows = self._statements.rows("read_some_attempts", source=self._source, most=FEW_COUNTERS)
        if len(rows) == FEW_COUNTERS:
            rows = self._statements.rows("read_attempts", source=self._source, **listed(keys))
        return {row.message_key: row for row in rows}

    def clear_attempts(self, keys: Sequence[str]) -> None:
        """Drop the counters of messages that leave."""
        self._statements.execute("clear_attempts", source=self._source, **listed(keys))

    def lateness(self, late_ms: Sequence[int]) -> object:
        """Packed, since there are no arrays."""
        return packed(late_ms)

    def raise_attempts(self, failed: Sequence[Failed]) -> None:
        """Count a failure for each."""
        self._claimed.fail(outcome.message for outcome in failed)
        self._statements.execute_many("raise_attempts", [self._failure(f) for f in failed])
        if self._kind.raise_counters is not None:
            keys = listed(outcome.message.key for outcome in failed)
            self._statements.execute(self._kind.raise_counters, **keys)

    def _failure(self, failed: Failed) -> dict[str, object]:
        message = failed.message
        seconds, milliseconds = divmod(int(failed.retry_seconds * 1_000), 1_000)
        return {
            "source": self._source,
            "message_key": message.key,
            "message_id": storable_or_none(message.message_id),
            "destination": destination_of(message, self._endpoint),
            "due": self._claimed.due(message),
            "attempts": message.attempts + 1,
            "retry_seconds": seconds,
            "retry_ms": milliseconds,
            "error_class": type_name(failed.error),
            "error_text": make_storable(str(failed.error)),
        }

    def journal_exhausted(
        self, run: SweepRun, slice_number: int, exhausted: Sequence[Exhausted], server_us: int
    ) -> None:
        """Journal messages out of attempts, whole."""
        for outcome in exhausted:
            message, error = outcome.message, outcome.error
            stored = self._claimed.headers(message)
            headers, headers_text = self._kind.stored_headers(message, stored)
            self._statements.execute(
                "journal_exhausted",
                source=self._source,
                sweep_id=run.sweep_id,
                slice=slice_number,
                message_key=message.key,
                message_id=storable_or_none(message.message_id),
                message_type=storable_or_none(message.message_type),
                destination=destination_of(message, self._endpoint),
                queue=outcome.queue,
                due_us=message.instant_us,
                dispatched_us=server_us,
                attempts=message.attempts + 1,
                error_class=type_name(error),
                error_text=make_storable(str(error)),
                stack=format_stack(error),
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
