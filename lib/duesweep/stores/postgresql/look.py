"""What an operator is shown of a delayed table in PostgreSQL."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from duesweep.core.waiting import DueSpan, WaitingMessage
from duesweep.drivers.postgresql.session import PostgreSqlSession
from duesweep.drivers.postgresql.wire import UuidArray
from duesweep.stores.postgresql.kinds import PostgreSqlTableKind
from duesweep.stores.relational.waiting import PAGE_ROWS, StoredRow, waiting_messages


@dataclass(frozen=True, slots=True)
class PostgreSqlLook:
    """Reads on a session. `zone` is the one whose clock Due shows."""

    statements: PostgreSqlSession
    source: str
    kind: PostgreSqlTableKind
    zone: str

    @contextmanager
    def pages(self, span: DueSpan) -> Iterator[Iterator[Sequence[WaitingMessage]]]:
        """The messages of a span in pages, in the transaction under way."""
        self.statements.row("set_first_rows_fast")
        with closing(self._pages(span)) as pages:
            yield pages

    def _pages(self, span: DueSpan) -> Generator[Sequence[WaitingMessage]]:
        values = {"zone": self.zone, "first": span.start, "last": span.end}
        with self.statements.pages("look", PAGE_ROWS, values) as pages:
            yield from map(self._messages, pages)
        if self.kind.may_lack_due and span.end is None:
            with self.statements.pages("look_timeless", PAGE_ROWS, {}) as pages:
                yield from map(self._messages, pages)

    def find(self, keys: Sequence[str], *, with_body: bool) -> Sequence[WaitingMessage]:
        """The messages with these keys."""
        found = self.statements.rows(
            "find", keys=UuidArray.of(_readable(keys)), with_body=with_body, zone=self.zone
        )
        return self._messages(found)

    def count(self, ends: Sequence[datetime]) -> Sequence[int]:
        """How many messages are due before, between and after these instants."""
        rows = self.statements.rows("count_buckets", ends=list(ends), zone=self.zone)
        counts = {row.bucket: row.messages for row in rows}
        return [counts.get(bucket, 0) for bucket in range(len(ends) + 1)]

    def _messages(self, rows: Sequence[Any]) -> list[WaitingMessage]:
        stored = [StoredRow(row.id, row.id, row.due_us, row.instant_us, None, row) for row in rows]
        return waiting_messages(self.kind, stored, self._failures([row.id for row in rows]))

    def _failures(self, keys: Sequence[str]) -> Mapping[str, Any]:
        rows = self.statements.rows("read_failures", source=self.source, keys=UuidArray.of(keys))
        return {row.message_key: row for row in rows}


def _readable(keys: Sequence[str]) -> list[str]:
    """The keys that are UUIDs, as the server writes them."""
    found = []
    for key in keys:
        with suppress(ValueError):
            found.append(str(UUID(key)))
    return found
