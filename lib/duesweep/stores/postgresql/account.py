"""What a task in PostgreSQL writes down: retry counters, and messages that are given up."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from duesweep.core.outcome import Exhausted, Failed
from duesweep.drivers.postgresql.wire import UuidArray, array_text
from duesweep.drivers.statements import Session
from duesweep.errors import format_stack, make_storable, type_name
from duesweep.stores.dialect import Location
from duesweep.stores.relational.account import FEW_COUNTERS, destination_of, storable_or_none
from duesweep.stores.values import SweepRun

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PostgreSqlAccount:
    """A `BatchAccount`: many messages a statement."""

    def __init__(self, statements: Session, store: Location) -> None:
        self._statements = statements
        self._source = store.source
        self._endpoint = store.addresses.endpoint

    def read_attempts(self, keys: Sequence[str]) -> Mapping[str, Any]:
        """The retry counters of claimed messages, by their keys; and perhaps some of others."""
        if not keys:
            return {}
        rows = self._statements.rows("read_some_attempts", source=self._source, most=FEW_COUNTERS)
        if len(rows) == FEW_COUNTERS:
            found = {"source": self._source, "keys": UuidArray.of(keys)}
            rows = self._statements.rows("read_attempts", **found)
        return {row.message_key: row for row in rows}

    def clear_attempts(self, keys: Sequence[str]) -> None:
        """Drop the counters of messages that leave."""
        self._statements.execute("clear_attempts", source=self._source, keys=UuidArray.of(keys))

    def lateness(self, late_ms: Sequence[int]) -> object:
        """As an array."""
        return array_text(map(str, late_ms))

    def raise_attempts(self, failed: Sequence[Failed]) -> None:
        """Count a failure for each."""
        self._statements.execute(
            "raise_attempts",
            source=self._source,
            keys=[f.message.key for f in failed],
            message_ids=[storable_or_none(f.message.message_id) for f in failed],
            destinations=[destination_of(f.message, self._endpoint) for f in failed],
            retry_seconds=[f.retry_seconds for f in failed],
            error_classes=[type_name(f.error) for f in failed],
            error_texts=[make_storable(str(f.error)) for f in failed],
        )

    def journal_exhausted(
        self, run: SweepRun, slice_number: int, exhausted: Sequence[Exhausted], server_us: int
    ) -> None:
        """Journal messages out of attempts, whole."""
        messages = [e.message for e in exhausted]
        self._statements.execute(
            "journal_exhausted",
            source=self._source,
            sweep_id=run.sweep_id,
            slice=slice_number,
            dispatched_at=_EPOCH + timedelta(microseconds=server_us),
            keys=[m.key for m in messages],
            instants_us=[m.instant_us for m in messages],
            message_ids=[storable_or_none(m.message_id) for m in messages],
            message_types=[storable_or_none(m.message_type) for m in messages],
            destinations=[destination_of(m, self._endpoint) for m in messages],
            queues=[e.queue for e in exhausted],
            attempts=[m.attempts + 1 for m in messages],
            error_classes=[type_name(e.error) for e in exhausted],
            error_texts=[make_storable(str(e.error)) for e in exhausted],
            stacks=[format_stack(e.error) for e in exhausted],
        )
