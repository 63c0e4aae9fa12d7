"""What an operator is shown of a delayed table on SQL Server."""

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from duesweep.core.store_clock import micros
from duesweep.core.waiting import DueSpan, WaitingMessage
from duesweep.drivers.sqlserver.binding import bound_text, due_of, last_text
from duesweep.drivers.sqlserver.session import SqlServerSession
from duesweep.stores.relational.waiting import PAGE_ROWS, StoredRow, waiting_messages
from duesweep.stores.sqlserver.account import listed
from duesweep.stores.sqlserver.kinds import SqlServerTableKind
from duesweep.stores.sqlserver.lock_keys import lock_key

# Before the first Due that a `datetime` can hold.
_EVER = datetime.min.replace(tzinfo=UTC)


class _Failure(NamedTuple):
    """A retry counter, its time as an instant."""

    attempts: int
    next_attempt_at: datetime
    error_text: str


@dataclass(frozen=True, slots=True)
class SqlServerLook:
    """Reads on a session."""

    statements: SqlServerSession
    source: str
    kind: SqlServerTableKind

    @contextmanager
    def pages(
        self, stream: SqlServerSession, span: DueSpan
    ) -> Iterator[Iterator[Sequence[WaitingMessage]]]:
        """The messages of a span in pages. `stream` are the statements of another session: a
        session that is sent rows takes no other statement meanwhile.
        """
        with closing(self._pages(stream, span)) as pages:
            yield pages

    def _pages(
        self, stream: SqlServerSession, span: DueSpan
    ) -> Generator[Sequence[WaitingMessage]]:
        values = {"first": bound_text(span.start or _EVER), "last": last_text(span.end)}
        with stream.pages("look", PAGE_ROWS, values) as pages:
            yield from map(self._messages, pages)
        if self.kind.may_lack_due and span.end is None:
            with stream.pages("look_timeless", PAGE_ROWS, {}) as pages:
                yield from map(self._messages, pages)

    def find(self, keys: Sequence[str], *, with_body: bool) -> Sequence[WaitingMessage]:
        """The messages with these keys."""
        readable = [key for key in keys if self.kind.is_key(key)]
        rows = self.statements.rows("find", with_body=with_body, **listed(readable))
        return self._messages(rows)

    def count(self, ends: Sequence[datetime]) -> Sequence[int]:
        """How many messages are due before, between and after these instants."""
        spans = json.dumps(
            [
                {"bucket": bucket, "first": bound_text(start), "last": last_text(end)}
                for bucket, (start, end) in enumerate(
                    zip((_EVER, *ends), (*ends, None), strict=True)
                )
            ]
        )
        rows = self.statements.rows("count_buckets", spans=spans)
        counts = {row.bucket: int(row.messages) for row in rows}
        # What has no Due comes after all that has one.
        counts[len(ends)] += counts[None]
        return [counts[bucket] for bucket in range(len(ends) + 1)]

    def _messages(self, rows: Sequence[Any]) -> list[WaitingMessage]:
        stored = [self._stored(row) for row in rows]
        return waiting_messages(self.kind, stored, self._failures([one.key for one in stored]))

    def _stored(self, row: Any) -> StoredRow:
        key = str(row.message_key)
        due_us = None if row.due is None else micros(due_of(row.due))
        attempts = None if self.kind.raise_counters is None else row.attempts
        return StoredRow(
            key, lock_key(self.kind, row.due or "", key), due_us, due_us, attempts, row
        )

    def _failures(self, keys: Sequence[str]) -> Mapping[str, _Failure]:
        rows = self.statements.rows("read_failures", source=self.source, **listed(keys))
        return {
            row.message_key: _Failure(row.attempts, due_of(row.next_attempt_at), row.error_text)
            for row in rows
        }
