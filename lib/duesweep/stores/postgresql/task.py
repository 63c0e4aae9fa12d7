"""One task's session on a PostgreSQL store: the batch contract."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

from duesweep import tombstone
from duesweep.drivers.postgresql import Connection, array_text
from duesweep.errors import (
    MessageError,
    StoreError,
    SweepClosedError,
    UnreadableHeadersError,
    stack_of,
    storable,
    type_name,
)
from duesweep.headers import json as headers_json
from duesweep.message import Message
from duesweep.outcome import Exhausted, Failed, Outcomes
from duesweep.stores.postgresql.place import PostgreSqlPlace
from duesweep.stores.values import Claim, SweepRun
from duesweep.tombstone import BatchClock, micros

_TURN_WAIT = "10s"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PostgreSqlTaskSession:
    """Claims by key and finishes, on one connection; `connection` is for a queue in the same
    database, which delivers in the claim's own transaction.
    """

    def __init__(self, connection: Connection, store: PostgreSqlPlace) -> None:
        self.connection = connection
        self._source = store.source
        self._tables = store.tables
        self._own_queue = store.addresses.endpoint

    def __enter__(self) -> "PostgreSqlTaskSession":
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.__exit__(*error)

    def transaction(self) -> AbstractContextManager[None]:
        """A transaction; nested, a savepoint."""
        return self.connection.transaction()

    def claim(self, run: SweepRun, keys: Sequence[str]) -> Claim:
        """Lock what is due and ripe among `keys`."""
        server_us = self._fence(run)
        rows = self._rows("claim", keys=array_text(keys), horizon=run.horizon.before)
        counters = self._read_attempts([row.id for row in rows])
        messages = [
            _message(row, counters[row.id].attempts if row.id in counters else 0)
            for row in rows
            if row.id not in counters or counters[row.id].is_ripe
        ]
        messages.sort(key=lambda message: message.due_us or 0)
        return Claim(tuple(messages), server_us)

    def grant_exhausted(self, run: SweepRun, wanted: int, limit: int) -> int:
        """How many more messages the sweep may exhaust."""
        # Another slice's batch, which is waited for, may take its time; a row's lock may not.
        (wait,) = self._rows("set_lock_wait", wait=_TURN_WAIT)
        (row,) = self._rows("lock_sweep_counters", sweep_id=run.sweep_id)
        self._rows("set_lock_wait", wait=wait.before)
        granted: int = max(0, min(wanted, limit - row.exhausted))
        return granted

    def finish(self, run: SweepRun, slice_number: int, outcomes: Outcomes, server_us: int) -> None:
        """Carry `outcomes` out in the claim's transaction."""
        clock = BatchClock(server_us, run.horizon.shift_us)
        if outcomes.exhausted:
            self._journal_exhausted(run, slice_number, outcomes.exhausted, clock)
        gone = [o.message for o in outcomes.delivered] + [o.message for o in outcomes.exhausted]
        self._remove(gone)
        if outcomes.failed:
            self._raise_attempts(outcomes.failed)
        if outcomes.exhausted or outcomes.held_back:
            self._execute(
                "add_exhausted",
                sweep_id=run.sweep_id,
                exhausted=len(outcomes.exhausted),
                held_back=outcomes.held_back,
            )
        self._journal_batch(run, slice_number, outcomes, clock)

    def end_slice(self, run: SweepRun, slice_number: int, planned: int, reason: str | None) -> None:
        """Journal the end of a slice, in a transaction of its own."""
        with self.transaction():
            self._fence(run)
            self._execute(
                "journal_slice",
                sweep_id=run.sweep_id,
                slice=slice_number,
                planned=planned,
                reason=reason and storable(reason),
            )

    def _fence(self, run: SweepRun) -> int:
        rows = self._rows("fence", sweep_id=run.sweep_id)
        if not rows or not rows[0].is_open:
            raise SweepClosedError(
                f"Sweep {run.sweep_id} of {self._source} was closed by another process, which took "
                "its driver for dead; what it had not delivered is left to the next sweep"
            )
        return micros(rows[0].server_time)

    def _read_attempts(self, keys: Sequence[str]) -> dict[str, Any]:
        if not keys:
            return {}
        rows = self._rows("read_attempts", source=self._source, keys=array_text(keys))
        return {row.message_key: row for row in rows}

    def _remove(self, messages: Sequence[Message]) -> None:
        if not messages:
            return
        removed = self._execute("remove", keys=array_text([m.key for m in messages]))
        if removed != len(messages):
            # A trigger or rule kept rows that are delivered already: roll everything back.
            raise StoreError(
                f"{self._tables['delayed']} removed {removed} of {len(messages)} rows that this "
                "sweep holds locked; look for triggers or rules on it",
                transient=False,
            )
        counted = [m.key for m in messages if m.attempts]
        if counted:
            self._execute("clear_attempts", source=self._source, keys=array_text(counted))

    def _journal_batch(
        self, run: SweepRun, slice_number: int, outcomes: Outcomes, clock: BatchClock
    ) -> None:
        delivered = outcomes.delivered
        late = clock.lateness_ms([o.message.due_us for o in delivered])
        tombstones = tombstone.encode(delivered, late, clock, self._own_queue)
        self._execute(
            "journal_batch",
            sweep_id=run.sweep_id,
            slice=slice_number,
            dispatched=len(delivered),
            failed=len(outcomes.failed),
            body_bytes=sum(o.message.body_bytes for o in delivered),
            attempts_changed=bool(outcomes.failed) or any(o.message.attempts for o in delivered),
            lateness_ms=array_text([str(ms) for ms in late if ms is not None]),
            outcomes=tombstones if delivered else None,
        )

    def _raise_attempts(self, failed: Sequence[Failed]) -> None:
        self._execute(
            "raise_attempts",
            source=self._source,
            keys=[f.message.key for f in failed],
            message_ids=[_storable(f.message.message_id) for f in failed],
            destinations=[self._destination(f.message) for f in failed],
            retry_seconds=[f.retry_seconds for f in failed],
            error_classes=[type_name(f.error) for f in failed],
            error_texts=[storable(str(f.error)) for f in failed],
        )

    def _journal_exhausted(
        self, run: SweepRun, slice_number: int, exhausted: Sequence[Exhausted], clock: BatchClock
    ) -> None:
        messages = [e.message for e in exhausted]
        self._execute(
            "journal_exhausted",
            source=self._source,
            sweep_id=run.sweep_id,
            slice=slice_number,
            clock_shift=timedelta(microseconds=clock.shift_us),
            dispatched_at=_EPOCH + timedelta(microseconds=clock.now_us),
            keys=[m.key for m in messages],
            message_ids=[_storable(m.message_id) for m in messages],
            message_types=[_storable(m.message_type) for m in messages],
            destinations=[self._destination(m) for m in messages],
            queues=[e.queue for e in exhausted],
            attempts=[m.attempts + 1 for m in messages],
            error_classes=[type_name(e.error) for e in exhausted],
            error_texts=[storable(str(e.error)) for e in exhausted],
            stacks=[stack_of(e.error) for e in exhausted],
        )

    def _destination(self, message: Message) -> str | None:
        if isinstance(message.headers, MessageError):
            return None
        return storable(message.destination or self._own_queue)

    def _rows(self, name: str, **values: object) -> list[Any]:
        return self.connection.rows(name, self._tables, **values)

    def _execute(self, name: str, **values: object) -> int:
        return self.connection.execute(name, self._tables, **values)


def _storable(text: str | None) -> str | None:
    return None if text is None else storable(text)


def _message(row: Any, attempts: int) -> Message:
    try:
        headers = headers_json.read(row.headers)
        destination = headers.get(headers_json.FORWARD_DESTINATION)
        text = row.headers
        if headers_json.FORWARD_DESTINATION in headers:
            text = headers_json.without_forward_destination(text)
    except UnreadableHeadersError as error:
        return Message(row.id, row.due_us, error, row.headers or "", row.body, None, attempts)
    return Message(row.id, row.due_us, headers, text, row.body, destination, attempts)
