"""A task's session on a relational store: batches of a slice, and single messages.

A batch is one transaction. It holds the sweep open, locks rows, reads their retry counters in a
statement of its own, and at the end removes delivered messages, counts failures, and journals both.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Self

from duesweep.core.account import SliceEnd, end_as_values
from duesweep.core.errors import (
    DeliveryFailedError,
    MessageError,
    UnusualBatchError,
    format_stack,
    make_storable,
    type_name,
)
from duesweep.core.message import Address, BatchResult, Exhausted, Failed, Message
from duesweep.core.policy import RateLimit
from duesweep.drivers.statements import Session, retry_lost_transactions
from duesweep.stores.dialect import Begun, Claims, Location, Locked, batches_lock
from duesweep.stores.messages import MessageSession, NewMessage
from duesweep.stores.sql_connection import begin_batch, refuse_closed, refuse_dropped
from duesweep.stores.sql_due import next_due
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.task import (
    NOBODY,
    Claim,
    Forwarded,
    LeftAlone,
    Moved,
    Selection,
    Table,
    TaskSession,
)
from duesweep.stores.tombstone import Tombstones

# Most sources have few counters: all of them cost less than a search for a thousand keys.
_FEW_COUNTERS = 100


class SqlTask(TaskSession):
    """One slice's session, on one connection; `connection` is for a queue in the same database,
    which delivers in the claim's own transaction.
    """

    def __init__(self, session: Session, location: Location) -> None:
        self.source = location.source
        self.connection = session
        self._location = location
        self._dialect = location.dialect
        self._kind = location.kind
        self._endpoint: str = location.addresses.endpoint
        delayed = location.find_delayed(session)
        self._statements = session.named(location.names(delayed))
        self._claims: Claims = self._dialect.claims(session, location, delayed)
        self.can_move = self._claims.can_move

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.__exit__(*error)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        is_batch = not self.connection.is_in_transaction
        with self._statements.transaction():
            yield
        if is_batch:
            # Not before: a batch that was rolled back is claimed again.
            self._claims.committed()

    def expect_no_idle_client(self) -> None:
        self._dialect.expect_no_idle_client(self._statements)

    # A batch.

    def claim(
        self, run: SweepRun, claim_keys: Sequence[str], left_alone: LeftAlone = NOBODY
    ) -> Claim:
        begun = self._begin(run)
        return self._claim(self._claims.lock(run, claim_keys, begun.paused, left_alone), begun)

    def select(
        self, run: SweepRun, groups: Sequence[Forwarded], left_alone: LeftAlone = NOBODY
    ) -> Selection:
        return self._claims.select(run, groups, left_alone)

    def move(self, run: SweepRun, selection: Selection, tables: Mapping[Address, Table]) -> Moved:
        begun, moved, missing = self._claims.move(run, selection, tables)
        if missing.skipped:
            raise UnusualBatchError("some rows are locked, or changed since the plan")
        # After the rows were locked, as in a claim.
        counters = self._read_counters(moved.keys)
        if counters:
            found = [counters.get(key) for key in moved.keys]
            if not all(counter is None or counter.is_eligible for counter in found):
                raise UnusualBatchError("a message is in back-off")
            moved = replace(moved, attempts=[c.attempts if c else 0 for c in found])
        return Moved(moved, begun.server_us, missing.gone, missing.later, begun.paused)

    def claim_key(self, message: Message) -> str:
        return self._claims.claim_key(message)

    def grant_exhausted(self, run: SweepRun, wanted: int, limit: int) -> int:
        """How many more messages the sweep may exhaust. If its other slices count for too long,
        none: then the messages stay as failures.
        """
        exhausted = self._dialect.count_exhausted(self._statements, run.sweep_id)
        return 0 if exhausted is None else max(0, min(wanted, limit - exhausted))

    def finish(self, run: SweepRun, slice_number: int, result: BatchResult, server_us: int) -> None:
        if result.exhausted:
            self._journal_exhausted(run, slice_number, result.exhausted, server_us)
        gone = [o.message for o in result.delivered] + [o.message for o in result.exhausted]
        if gone:
            self._remove(gone)
        if result.failed:
            self._count_failures(result.failed)
        if result.exhausted or result.over_limit:
            self._statements.execute(
                "add_exhausted",
                sweep_id=run.sweep_id,
                exhausted=len(result.exhausted),
                over_limit=result.over_limit,
            )
        tombstones = Tombstones.of(result.delivered, self._endpoint)
        self._journal_batch(run, slice_number, tombstones, server_us, failed=len(result.failed))

    def finish_moved(self, run: SweepRun, slice_number: int, moved: Moved, server_us: int) -> None:
        tombstones = moved.tombstones
        counted = zip(tombstones.keys, tombstones.attempts, strict=True)
        self._clear_counters(key for key, failures in counted if failures)
        self._journal_batch(run, slice_number, tombstones, server_us)

    def end_slice(self, run: SweepRun, slice_number: int, end: SliceEnd) -> None:
        """Journal the end of a slice, in a transaction of its own."""
        with self.transaction():
            refuse_closed(self.source, run, self._fence(run))
            self._statements.execute(
                "journal_slice",
                sweep_id=run.sweep_id,
                slice=slice_number,
                **end_as_values(end),
            )

    @retry_lost_transactions
    def reserve(self, limit: RateLimit, messages: int) -> float:
        seconds = messages * limit.seconds_each
        with self._statements.transaction():
            row = self._statements.row(
                "reserve", source=self.source, pattern=limit.pattern, seconds=seconds
            )
        return float(row.wait_seconds)

    # The steps of a batch.

    def _fence(self, run: SweepRun) -> Sequence[Any]:
        """Hold the sweep open until this transaction ends."""
        lock = self._dialect.lock(batches_lock(run.sweep_id))
        return self._statements.rows("fence", sweep_id=run.sweep_id, **lock)

    def _begin(self, run: SweepRun) -> Begun:
        return begin_batch(self._statements, self.source, run, self._fence(run))

    def _claim(self, locked: Locked, begun: Begun) -> Claim:
        messages = self._messages(locked.rows, in_back_off=False)
        messages.sort(key=lambda message: message.due_us or 0)
        later = locked.later + len(locked.rows) - len(messages)
        return Claim(
            tuple(messages),
            begun.server_us,
            locked.unread,
            locked.skipped,
            locked.gone,
            later,
            begun.paused,
        )

    def _messages(self, rows: Sequence[Any], *, in_back_off: bool) -> list[Message]:
        """The messages in these rows, with those `in_back_off` or without."""
        kind, read = self._kind, self._dialect.message
        keys = list(map(self._dialect.key, rows))
        # After the rows were locked: or two sweeps could both count one failure.
        counters = self._read_counters(keys)
        if not counters:
            return [read(kind, row, 0) for row in rows]
        counted = ((row, counters.get(key)) for key, row in zip(keys, rows, strict=True))
        return [
            read(kind, row, 0 if counter is None else counter.attempts)
            for row, counter in counted
            if in_back_off or counter is None or counter.is_eligible
        ]

    def _read_counters(self, keys: Sequence[str]) -> Mapping[str, Any]:
        """The retry counters of messages, by their keys; and perhaps some of others."""
        if not keys:
            return {}
        rows = self._statements.rows("read_some_attempts", source=self.source, most=_FEW_COUNTERS)
        if len(rows) == _FEW_COUNTERS:
            found = self._dialect.keys(keys)
            rows = self._statements.rows("read_attempts", source=self.source, **found)
        return {row.message_key: row for row in rows}

    def _clear_counters(self, keys: Iterable[str]) -> None:
        """Drop the counters of messages that leave."""
        if counted := list(keys):
            found = self._dialect.keys(counted)
            self._statements.execute("clear_attempts", source=self.source, **found)

    def _count_failures(self, failed: Sequence[Failed]) -> None:
        rows = [
            {
                "message_key": f.message.key,
                "message_id": storable_or_none(f.message.message_id),
                "destination": self._destination_of(f.message),
                "error_class": type_name(f.error),
                "error_text": make_storable(str(f.error)),
                **self._claims.fail(f),
            }
            for f in failed
        ]
        source = {"source": self.source}
        self._dialect.execute_rows(self._statements, "raise_attempts", source, rows)
        if self._kind.raise_counters is not None:
            keys = self._dialect.keys(f.message.key for f in failed)
            self._statements.execute(self._kind.raise_counters, **keys)

    def _remove(self, messages: Sequence[Message]) -> None:
        removed = self._claims.remove(messages)
        if removed != len(messages):
            # They are delivered already: roll everything back.
            raise self._dialect.not_removed(
                f"{self.source} removed {removed} of {len(messages)} rows that this sweep holds "
                "locked",
                "look for triggers or rules on the delayed table",
            )
        self._clear_counters(m.key for m in messages if m.attempts)

    def _journal_batch(
        self,
        run: SweepRun,
        slice_number: int,
        tombstones: Tombstones,
        server_us: int,
        *,
        failed: int = 0,
    ) -> None:
        late = tombstones.lateness_ms(server_us)
        took = self._statements.execute(
            "journal_batch",
            sweep_id=run.sweep_id,
            slice=slice_number,
            dispatched=len(tombstones.keys),
            failed=failed,
            body_bytes=sum(tombstones.body_bytes),
            attempts_changed=bool(failed) or any(tombstones.attempts),
            lateness_ms=self._dialect.late([ms for ms in late if ms is not None]),
            outcomes=tombstones.encode(late, server_us) if tombstones.keys else None,
        )
        refuse_dropped(took, self.source)

    def _journal_exhausted(
        self, run: SweepRun, slice_number: int, exhausted: Sequence[Exhausted], server_us: int
    ) -> None:
        """Journal messages out of attempts, whole."""
        same = {
            "source": self.source,
            "sweep_id": run.sweep_id,
            "slice": slice_number,
            "dispatched_us": server_us,
        }
        rows = [
            {
                "message_key": e.message.key,
                "message_id": storable_or_none(e.message.message_id),
                "message_type": storable_or_none(e.message.message_type),
                "destination": self._destination_of(e.message),
                "queue": e.queue,
                "due_us": e.message.instant_us,
                "attempts": e.message.attempts + 1,
                "error_class": type_name(e.error),
                "error_text": make_storable(e.text),
                "stack": format_stack(e.error),
                **self._claims.stored(e.message),
            }
            for e in exhausted
        ]
        self._dialect.execute_rows(self._statements, "journal_exhausted", same, rows)

    def _destination_of(self, message: Message) -> str | None:
        """The destination to write down; None if it cannot be read."""
        if isinstance(message.headers, MessageError) and message.destination is None:
            return None
        return make_storable(self._endpoint if message.destination is None else message.destination)


class SqlMessages(SqlTask, MessageSession):
    """One message at a time: a claim of one, without a sweep."""

    def __init__(self, session: Session, location: Location) -> None:
        super().__init__(session, location)
        self._zone = self._dialect.zone(session, location)

    def store(self, message: NewMessage) -> str:
        with self.transaction():
            return self._claims.store(message, self._zone)

    def fetch_next_due(self) -> Message | None:
        rows = self._claims.lock_next(self._zone)
        return next(iter(self._messages(rows, in_back_off=False)), None)

    def remove(self, message: Message) -> bool:
        is_removed = self._claims.is_there(message) and bool(self._claims.remove([message]))
        self._clear_counters([message.key])
        return is_removed

    def raise_failure_count(self, message: Message) -> bool:
        if not self._claims.is_there(message):
            return False
        self._count_failures([Failed(message, DeliveryFailedError("It was not delivered"), 0)])
        return True

    def next_due(self) -> datetime | None:
        return next_due(self._location, self._statements, None, self._zone)


def storable_or_none(text: str | None) -> str | None:
    """`text` without characters that a text column cannot hold; None stays None."""
    return None if text is None else make_storable(text)
