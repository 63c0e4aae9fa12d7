"""Rows of a delayed table as an operator sees them."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from duesweep.core.waiting import WaitingMessage
from duesweep.stores.relational.kinds import TableKind

# How many messages are read at a time: a page.
PAGE_ROWS = 1_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class StoredRow(NamedTuple):
    """A row that was read, with what each dialect says in its own way. `attempts` is the row's own
    counter of failures; None: it has none.
    """

    key: str
    lock_key: str
    due_us: int | None
    instant_us: int | None
    attempts: int | None
    row: Any


def waiting_messages(
    kind: TableKind, stored: Iterable[StoredRow], failures: Mapping[str, Any]
) -> list[WaitingMessage]:
    """The messages in these rows. `failures` are the rows of `read_failures` by their keys, with
    instants.
    """
    return [_waiting(kind, one, failures.get(one.key)) for one in stored]


def _waiting(kind: TableKind, stored: StoredRow, failure: Any) -> WaitingMessage:
    counted = failure.attempts if failure else 0
    attempts = counted if stored.attempts is None else stored.attempts
    message = kind.read_message(stored.key, stored.due_us, stored.instant_us, stored.row, attempts)
    due = None if stored.instant_us is None else _moment(stored.instant_us)
    waiting = WaitingMessage(message, stored.lock_key, due, stored.row.body_bytes)
    if failure is None:
        return waiting
    return waiting._replace(next_attempt_at=failure.next_attempt_at, error=failure.error_text)


def _moment(instant_us: int) -> datetime:
    """The instant; one outside of Python's years is the first or the last of them."""
    try:
        return _EPOCH + timedelta(microseconds=instant_us)
    except OverflowError:
        return _FIRST if instant_us < 0 else _LAST
