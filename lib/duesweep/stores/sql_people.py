"""What people see of a relational store, and hold back; and rows next to a delayed table whose
message, sweep or endpoint is gone.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from datetime import datetime
from typing import Any
from uuid import UUID

from duesweep.core.change import DueSpan, WaitingMessage
from duesweep.core.world import instant_of
from duesweep.drivers.statements import Keys, Session, retry_lost_transactions
from duesweep.stores.due import Horizon
from duesweep.stores.people import DroppedSource, People
from duesweep.stores.sql_connection import SqlConnection, SqlPart
from duesweep.stores.sql_due import SqlDue
from duesweep.stores.summary import aware
from duesweep.stores.tables import estimated_rows

# How many messages, or keys, are read at a time: a page.
_PAGE_ROWS = 1_000
_KEYS_PER_PAGE = 20_000
# The binding is the last: as long as it is there, the source is known as one to forget.
_ROWS_OF_A_SOURCE = ("forget_attempts", "forget_pauses", "forget_limits", "unbind")


class SqlPeople(SqlPart, People):
    """Messages in the order of their Due, pauses, and the rows that messages, sweeps
    and endpoints have left. The tables of all sources in a schema are the same.
    """

    def __init__(self, at: SqlConnection, due: SqlDue) -> None:
        super().__init__(at)
        self._due = due

    @contextmanager
    def look(self, span: DueSpan) -> Iterator[Iterator[Sequence[WaitingMessage]]]:
        with (
            self._stream(is_ordered=True) as stream,
            closing(self._pages_of(stream, span)) as pages,
        ):
            yield pages

    def _pages_of(self, stream: Session, span: DueSpan) -> Generator[Sequence[WaitingMessage]]:
        values = {"first": span.start, "end": span.end, "zone": self._at.zone}
        with stream.pages("look", _PAGE_ROWS, values) as pages:
            yield from map(self._waiting, pages)
        if self._kind.may_lack_due and span.end is None:
            with stream.pages("look_timeless", _PAGE_ROWS, {}) as pages:
                yield from map(self._waiting, pages)

    def find(self, keys: Sequence[str], *, with_body: bool = False) -> Sequence[WaitingMessage]:
        readable = Keys(filter(None, map(self._kind.as_key, keys)))
        zone = self._at.zone
        with nullcontext() if self._kind.has_indexed_key else self._at.looking_at_all():
            rows = self._session.rows("find", with_body=with_body, zone=zone, keys=readable)
            return self._waiting(rows)

    def count_waiting(self, ends: Sequence[datetime]) -> Sequence[int]:
        zone = self._at.zone
        with self._at.looking_at_all():
            rows = self._session.rows("count_buckets", ends=list(ends), zone=zone)
        counts = {row.bucket: int(row.messages) for row in rows}
        # Messages without a Due come last.
        counts[len(ends)] = counts.get(len(ends), 0) + counts.get(None, 0)
        return [counts.get(bucket, 0) for bucket in range(len(ends) + 1)]

    @contextmanager
    def keys(self) -> Iterator[Iterator[Sequence[str]]]:
        with self._stream() as stream, stream.pages("stored_keys", _KEYS_PER_PAGE, {}) as pages:
            yield ([row.message_key for row in page] for page in pages)

    def _waiting(self, rows: Sequence[Any]) -> list[WaitingMessage]:
        keys = Keys(row.message_key for row in rows)
        found = self._session.rows("read_failures", source=self.source, keys=keys)
        failures = {row.message_key: row for row in found}
        return [
            self._one_waiting(row, failures.get(key)) for key, row in zip(keys, rows, strict=True)
        ]

    def _one_waiting(self, row: Any, failure: Any) -> WaitingMessage:
        message = self._kind.read_message(row, failure.attempts if failure else 0)
        due = None if message.instant_us is None else instant_of(message.instant_us)
        waiting = WaitingMessage(message, self._kind.lock_key(row), due, row.body_bytes)
        if failure is None:
            return waiting
        return waiting._replace(
            next_attempt_at=aware(failure.next_attempt_at),
            error=failure.error_text,
        )

    def _stream(self, *, is_ordered: bool = False) -> AbstractContextManager[Session]:
        seconds = self._location.timeouts.plan_seconds(estimated_rows(self._session, self._delayed))
        return self._dialect.stream(self._session, self._location, seconds, is_ordered=is_ordered)

    # Pauses, and commands that undo.

    @retry_lost_transactions
    def pause(self, pattern: str, until: datetime | None, given_by: str, reason: str) -> None:
        self._due.forget_pauses()
        values = {"until": until, "given_by": given_by, "reason": reason}
        with self._session.transaction():
            self._session.execute("drop_old_pauses", source=self.source)
            self._session.execute("pause", source=self.source, pattern=pattern, **values)

    @retry_lost_transactions
    def resume(self, pattern: str) -> bool:
        self._due.forget_pauses()
        with self._session.transaction():
            self._session.execute("drop_old_pauses", source=self.source)
            return bool(self._session.execute("resume", source=self.source, pattern=pattern))

    def plan_sql(self, horizon: Horizon) -> str:
        return self._due.plan_sql(horizon)

    # Rows whose message, sweep or endpoint is gone.

    def gone_counters(self, most: int) -> Sequence[str]:
        with self._at.looking_at_all():
            rows = self._session.rows("gone_counters", source=self.source, most=most)
        return [row.message_key for row in rows]

    def orphaned_journal(self) -> Sequence[UUID]:
        with self._at.looking_at_all():
            rows = self._session.rows("orphaned_journal")
        return [UUID(str(row.sweep_id)) for row in rows]

    def dropped(self) -> Sequence[DroppedSource]:
        rows = self._session.rows("dropped_sources")
        return [DroppedSource(row.source, row.delayed, int(row.unsettled)) for row in rows]

    @retry_lost_transactions
    def forget(self, source: str) -> int:
        total = 0
        with self._session.transaction():
            for name in _ROWS_OF_A_SOURCE:
                while some := self._session.execute(name, source=source):
                    total += some
        return total
