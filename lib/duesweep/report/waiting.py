"""Waiting messages as rows of a table and as JSON."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from duesweep.core.change import WaitingMessage
from duesweep.core.times import BUCKETS
from duesweep.report.quantities import duration_text
from duesweep.report.tables import Cell, Column, Row

COLUMNS = (
    Column("due (UTC)", least=None),
    Column("in", least=None),
    Column("destination", least=12),
    Column("type"),
    Column("message id", least=8),
    Column("key", least=None),
    Column("attempts", is_number=True),
)
FAILING_COLUMNS = (
    Column("attempts", is_number=True),
    Column("next attempt (UTC)", least=None),
    Column("destination", least=12),
    Column("type"),
    Column("key", least=None),
    Column("reason", least=20),
)
BUCKET_COLUMNS = (Column("due", least=None), Column("messages", is_number=True))

_FORMAT = "%Y-%m-%d %H:%M:%S"
_MILLISECOND = timedelta(milliseconds=1)


def message_row(waiting: WaitingMessage, now: datetime, own_queue: str) -> Row:
    """A message's cells in the order of `COLUMNS`."""
    message = waiting.message
    attempts = str(message.attempts)
    return [
        "never" if waiting.due is None else f"{waiting.due.astimezone(UTC):{_FORMAT}}",
        wait_text(waiting.due, now),
        destination_text(waiting, own_queue),
        message.message_type or "",
        message.message_id or "",
        message.key,
        Cell(attempts, "yellow") if message.attempts else attempts,
    ]


def failing_row(waiting: WaitingMessage, now: datetime, own_queue: str) -> Row:
    """A failed message's cells in the order of `FAILING_COLUMNS`."""
    message, next_attempt = waiting.message, waiting.next_attempt_at
    if waiting.due is None:
        when = "never"
    else:
        start = max(waiting.due, next_attempt or now, now)
        when = "next sweep" if start == now else f"{start.astimezone(UTC):{_FORMAT}}"
    return [
        f"{message.attempts:,}",
        when,
        destination_text(waiting, own_queue),
        message.message_type or "",
        message.key,
        waiting.error or "",
    ]


def wait_text(due: datetime | None, now: datetime) -> str:
    """How long it is until a message is due, or since it was."""
    if due is None:
        return ""
    milliseconds = abs(due - now) / _MILLISECOND
    return duration_text(milliseconds) if due > now else f"{duration_text(milliseconds)} ago"


def destination_text(waiting: WaitingMessage, own_queue: str) -> str:
    """Where the message goes; empty where nobody can tell."""
    return waiting.destination(own_queue) or ""


def bucket_rows(counts: Sequence[int]) -> list[Row]:
    """The cells of `BUCKET_COLUMNS`: how many messages are in each of `BUCKETS`, and in all."""
    rows: list[Row] = [
        [name.replace("_", " "), f"{count:,}"] for name, count in zip(BUCKETS, counts, strict=True)
    ]
    return [*rows, ["all", f"{sum(counts):,}"]]


def message_document(waiting: WaitingMessage, own_queue: str) -> dict[str, Any]:
    """A message for JSON, without its headers and its body; times are in ISO 8601."""
    message, next_attempt = waiting.message, waiting.next_attempt_at
    return {
        "key": message.key,
        "message_id": message.message_id,
        "message_type": message.message_type,
        "destination": destination_text(waiting, own_queue) or None,
        "due": None if waiting.due is None else waiting.due.astimezone(UTC).isoformat(),
        "body_bytes": waiting.body_bytes,
        "attempts": message.attempts,
        "next_attempt_at": None if next_attempt is None else next_attempt.isoformat(),
        "error": waiting.error,
    }
