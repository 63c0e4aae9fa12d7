"""One task's session on a PostgreSQL store: the batch contract."""

from collections.abc import Sequence, Set
from datetime import UTC, datetime, timedelta
from typing import Any

from duesweep.drivers.postgresql import PostgreSqlConnection, array_text
from duesweep.errors import stack_of, storable, type_name
from duesweep.message import Message
from duesweep.outcome import Exhausted, Failed
from duesweep.stores.postgresql.location import PostgreSqlLocation
from duesweep.stores.postgresql.statements import PostgreSqlStatements
from duesweep.stores.relational.messages import json_message
from duesweep.stores.relational.task import RelationalTaskSession, storable_or_none
from duesweep.stores.values import Claim, Horizon, SweepRun

_TURN_WAIT = "10s"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PostgreSqlTaskSession(RelationalTaskSession):
    """Claims by key and finishes, on one connection; `connection` is for a queue in the same
    database, which delivers in the claim's own transaction.
    """

    def __init__(self, connection: PostgreSqlConnection, store: PostgreSqlLocation) -> None:
        statements = PostgreSqlStatements(connection, store.names)
        super().__init__(statements, store.source, store.addresses.endpoint)
        self.connection = connection

    def __enter__(self) -> "PostgreSqlTaskSession":
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.__exit__(*error)

    def claim(self, run: SweepRun, claim_keys: Sequence[str]) -> Claim:
        """Lock what is eligible among these keys."""
        server_us = self._fence(run)
        horizon = run.horizon
        rows = self._statements.rows(
            "claim",
            keys=array_text(claim_keys),
            horizon=horizon.before,
            **instant_values(horizon),
        )
        skipped, gone, later = self._unclaimed(claim_keys, {row.id for row in rows}, horizon.before)
        counters = self._read_attempts([row.id for row in rows])
        messages = [
            self._due_message(row, counters.get(row.id))
            for row in rows
            if row.id not in counters or counters[row.id].is_eligible
        ]
        messages.sort(key=lambda message: message.due_us or 0)
        later += len(rows) - len(messages)
        return Claim(tuple(messages), server_us, (), skipped, gone, later)

    def _unclaimed(
        self, claim_keys: Sequence[str], claimed: Set[str], horizon: datetime
    ) -> tuple[int, int, int]:
        """How many of the keys that were not claimed are held by others, gone, and due later."""
        missing = [key for key in claim_keys if key not in claimed]
        if not missing:
            return 0, 0, 0
        row = self._statements.row("explain_unclaimed", keys=array_text(missing), horizon=horizon)
        return row.skipped, len(missing) - row.skipped - row.later, row.later

    def claim_key(self, message: Message) -> str:
        """Its key, which is indexed."""
        return message.key

    def _due_message(self, row: Any, counter: Any) -> Message:
        """The message in a claimed row, with the instant that the server made of its Due."""
        return self._message(row, counter)._replace(instant_us=row.instant_us)

    def _message(self, row: Any, counter: Any) -> Message:
        attempts = counter.attempts if counter else 0
        return json_message(row.id, row.due_us, row.headers, row.body, attempts)

    def exclude(self, messages: Sequence[Message]) -> None:
        """Nothing to do: a key leads to its own message only, and the plan has it once."""

    def grant_exhausted(self, run: SweepRun, wanted: int, limit: int) -> int:
        """How many more messages the sweep may exhaust."""
        # Another slice's batch, which is waited for, may take its time; a row's lock may not.
        wait = self._statements.row("set_lock_wait", wait=_TURN_WAIT)
        row = self._statements.row("lock_sweep_counters", sweep_id=run.sweep_id)
        self._statements.row("set_lock_wait", wait=wait.before)
        exhausted: int = row.exhausted
        return max(0, min(wanted, limit - exhausted))

    def _read_attempts(self, keys: Sequence[str]) -> dict[str, Any]:
        if not keys:
            return {}
        rows = self._statements.rows("read_attempts", source=self._source, keys=array_text(keys))
        return {row.message_key: row for row in rows}

    def _remove(self, messages: Sequence[Message]) -> int:
        return self._statements.execute("remove", keys=array_text([m.key for m in messages]))

    def _clear_attempts(self, keys: Sequence[str]) -> None:
        self._statements.execute("clear_attempts", source=self._source, keys=array_text(keys))

    def _late(self, late_ms: Sequence[int]) -> object:
        return array_text(map(str, late_ms))

    def _raise_attempts(self, failed: Sequence[Failed]) -> None:
        self._statements.execute(
            "raise_attempts",
            source=self._source,
            keys=[f.message.key for f in failed],
            message_ids=[storable_or_none(f.message.message_id) for f in failed],
            destinations=[self._destination(f.message) for f in failed],
            retry_seconds=[f.retry_seconds for f in failed],
            error_classes=[type_name(f.error) for f in failed],
            error_texts=[storable(str(f.error)) for f in failed],
        )

    def _journal_exhausted(
        self, run: SweepRun, slice_number: int, exhausted: Sequence[Exhausted], server_us: int
    ) -> None:
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
            destinations=[self._destination(m) for m in messages],
            queues=[e.queue for e in exhausted],
            attempts=[m.attempts + 1 for m in messages],
            error_classes=[type_name(e.error) for e in exhausted],
            error_texts=[storable(str(e.error)) for e in exhausted],
            stacks=[stack_of(e.error) for e in exhausted],
        )


def instant_values(horizon: Horizon) -> dict[str, object]:
    """The values by which the server makes an instant of a Due.

    Without looking ahead only what is due is claimed, so no instant may be later than the sweep's
    own time. In the hour of a clock change the zone's rules alone could name a later one.
    """
    latest = None if horizon.ahead else horizon.server_time
    return {"zone": horizon.zone or "UTC", "latest": latest}
