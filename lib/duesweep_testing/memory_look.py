"""What an operator is shown of a store in memory."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from duesweep.core.store_clock import instant_of, micros
from duesweep.core.waiting import DueSpan, WaitingMessage
from duesweep_testing.builders import DelayedRow, message
from duesweep_testing.memory_state import MemoryState

_PAGE_ROWS = 1_000
_NEVER = float("inf")


class MemoryLook:
    """Reads the store's dictionaries, whoever holds their rows. It `LooksAtMessages`."""

    def __init__(self, store: MemoryState) -> None:
        self._store = store

    @contextmanager
    def look(self, span: DueSpan) -> Iterator[Iterator[Sequence[WaitingMessage]]]:
        """The messages that are due in the span, those with the earliest Due first, in pages."""
        start = None if span.start is None else micros(span.start)
        end = None if span.end is None else micros(span.end)
        rows = [
            row
            for row in sorted(self._store.rows.values(), key=_place)
            if (start is None or _place(row) >= start) and (end is None or _place(row) < end)
        ]
        pages = (rows[at : at + _PAGE_ROWS] for at in range(0, len(rows), _PAGE_ROWS))
        yield (self._messages(page, with_body=False) for page in pages)

    def find(self, keys: Sequence[str], *, with_body: bool = False) -> Sequence[WaitingMessage]:
        """The messages with these keys that are stored."""
        rows = [self._store.rows[key] for key in dict.fromkeys(keys) if key in self._store.rows]
        return self._messages(rows, with_body=with_body)

    def count_waiting(self, ends: Sequence[datetime]) -> Sequence[int]:
        """How many messages are due before, between and after these instants."""
        bounds = [micros(end) for end in ends]
        found = Counter(bisect_right(bounds, _place(row)) for row in self._store.rows.values())
        return [found[bucket] for bucket in range(len(ends) + 1)]

    def _messages(self, rows: Sequence[DelayedRow], *, with_body: bool) -> list[WaitingMessage]:
        return [self._message(row, with_body=with_body) for row in rows]

    def _message(self, row: DelayedRow, *, with_body: bool) -> WaitingMessage:
        attempts, eligible_us = self._store.attempts.get(row.key, (0, 0))
        shown = message(row, attempts)
        waiting = WaitingMessage(
            shown if with_body else shown._replace(body=None),
            lock_key=row.key,
            due=row.due if isinstance(row.due, datetime) else None,
            body_bytes=shown.body_bytes,
        )
        if not attempts:
            return waiting
        return waiting._replace(
            next_attempt_at=instant_of(eligible_us),
            error=self._store.errors[row.key],
        )


def _place(row: DelayedRow) -> float:
    """Its Due in microseconds, with an infinite one at its end."""
    if isinstance(row.due, datetime):
        return micros(row.due)
    return _NEVER if row.due == "infinity" else -_NEVER
