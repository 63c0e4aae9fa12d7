"""What the ledger tells of one message: deliveries, failures, and what operators did to it."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from duesweep.core.change import spellings
from duesweep.ledger.base import Among, LedgerRow
from duesweep.ledger.ledger import Ledger


class Event(NamedTuple):
    """A row of the ledger's `table`: when what became of the message, and in which sweep or by
    which command.
    """

    at: datetime | None
    table: str
    what: str
    detail: str
    sweep_id: str | None


def read_history(
    ledger: Ledger, source: str, key: str | None, message_id: str | None
) -> list[Event]:
    """The events of a message, the earliest first. It is known by its key, by its message id, or by
    both; rows of the key tell its message id, and a message that came back has another key.
    """
    found = list(_rows(ledger, source, "message_key", sorted(spellings([key])) if key else []))
    ids = {message_id, *(row.message_id for row in found)} - {None}
    others = _rows(ledger, source, "message_id", sorted(filter(None, ids)))
    # Those of the key are there already, each as often as the ledger has it.
    found += [row for row in others if key is None or row.message_key not in spellings([key])]
    events = [row.event for row in found]
    return sorted(events, key=lambda event: (event.at is not None, event.at or 0))


class _Found(NamedTuple):
    event: Event
    message_key: str | None
    message_id: str | None


def _rows(ledger: Ledger, source: str, column: str, values: list[str]) -> Iterator[_Found]:
    """The events of all tables."""
    if not values:
        return
    for table, (columns, event) in _TABLES.items():
        wanted = Among("source", [source]), Among(column, values)
        for row in ledger.rows(table, [*columns, "message_key", "message_id"], *wanted):
            yield _Found(event(row), row["message_key"], row["message_id"])


def _tombstone(row: LedgerRow) -> Event:
    queue = f"to {row['queue']}" if row["queue"] else ""
    late = "" if row["lateness_ms"] is None else f"{row['lateness_ms']:,} ms late"
    return Event(
        row["dispatched_at"],
        "tombstones",
        row["outcome"],
        _joined(queue, late, f"attempt {row['attempts']}"),
        row["sweep_id"],
    )


def _retry(row: LedgerRow) -> Event:
    detail = _joined(f"failures so far: {row['attempts']}", row["error_text"])
    return Event(row["last_failed_at"], "retries", "failed", detail, None)


def _error(row: LedgerRow) -> Event:
    detail = _joined(f"failures: {row['attempts']}", row["error_text"])
    return Event(row["last_failed_at"], "errors", "exhausted", detail, row["sweep_id"])


def _change(row: LedgerRow) -> Event:
    dues = [_time(row["due_before"]), _time(row["due_after"])]
    detail = _joined(
        f"by {row['given_by']}",
        f"due {' -> '.join(dues)}" if any(dues) else "",
        f"to {row['queue']}" if row["queue"] else "",
        row["reason"] or "",
    )
    return Event(row["changed_at"], "changes", row["change"], detail, row["sweep_id"])


def _time(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


_TABLES: dict[str, tuple[Iterable[str], Callable[[LedgerRow], Event]]] = {
    "tombstones": (
        ("dispatched_at", "outcome", "queue", "lateness_ms", "attempts", "sweep_id"),
        _tombstone,
    ),
    "retries": (("last_failed_at", "attempts", "error_text"), _retry),
    "errors": (("last_failed_at", "attempts", "error_text", "sweep_id"), _error),
    "changes": (
        (
            *("changed_at", "change", "given_by", "due_before", "due_after", "queue", "reason"),
            "sweep_id",
        ),
        _change,
    ),
}
