"""One waiting message, whole: as lines for people, and as JSON."""

import base64
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.cells import cell_len

from duesweep.core.change import WaitingMessage
from duesweep.core.errors import MessageError, make_printable, shorten
from duesweep.history import Event
from duesweep.report.bodies import BodyForm, view_body
from duesweep.report.quantities import size_text, time_text
from duesweep.report.tables import Column, Row
from duesweep.report.waiting import destination_text, message_document, wait_text

EVENT_COLUMNS = (
    Column("at (UTC)", least=None),
    Column("what", least=None),
    Column("detail", least=20),
    Column("sweep or command", least=None),
)
# Longer names do not move the values of all others to the right.
_WIDEST_NAME = 50
# Of headers that nobody can read.
_LONGEST_HEADERS = 4_000


def facts_lines(waiting: WaitingMessage, now: datetime, own_queue: str) -> list[str]:
    """What is known of the message besides its headers and its body, a line for each fact."""
    message = waiting.message
    facts = {
        "key": message.key,
        "message id": message.message_id,
        "type": message.message_type,
        "destination": destination_text(waiting, own_queue),
        "due": _due_text(waiting, now),
        "failures": _failures_text(waiting, now),
        "last error": waiting.error,
        "body": "none" if message.body is None else size_text(waiting.body_bytes),
    }
    return _aligned({name: value for name, value in facts.items() if value})


def header_lines(waiting: WaitingMessage) -> list[str]:
    """The headers with their values under each other; if they cannot be read, why, and the text."""
    message = waiting.message
    if isinstance(message.headers, MessageError):
        stored = make_printable(shorten(message.headers_text, _LONGEST_HEADERS))
        return [make_printable(f"cannot be read: {message.headers}"), stored]
    return _aligned(
        {name: "(null)" if value is None else value for name, value in message.headers.items()}
    )


def body_lines(body: bytes, form: BodyForm | None) -> Iterator[str]:
    """The body below a line that says how it is shown."""
    view = view_body(body, form)
    cut = ", the beginning; --body-to FILE writes all of it" if view.is_cut else ""
    yield f"body ({size_text(len(body))}, as {view.form}{cut})"
    if view.problem:
        yield make_printable(view.problem)
    yield from view.lines


def event_row(event: Event) -> Row:
    """An event's cells in the order of `EVENT_COLUMNS`."""
    at = "" if event.at is None else f"{event.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    return [at, event.what, event.detail, event.sweep_id or ""]


def event_document(event: Event) -> dict[str, Any]:
    """An event for JSON."""
    at = None if event.at is None else event.at.astimezone(UTC).isoformat()
    return event._asdict() | {"at": at}


def whole_document(waiting: WaitingMessage, own_queue: str) -> dict[str, Any]:
    """The message for JSON: its headers (null: `headers_error` says why), their stored text, and
    its body in base64.
    """
    message = waiting.message
    is_read = not isinstance(message.headers, MessageError)
    return message_document(waiting, own_queue) | {
        "headers": dict(message.headers) if is_read else None,  # type: ignore[arg-type] # they are
        "headers_error": None if is_read else str(message.headers),
        "headers_text": message.headers_text,
        "body": None if message.body is None else base64.b64encode(message.body).decode(),
    }


def _due_text(waiting: WaitingMessage, now: datetime) -> str:
    if waiting.due is None:
        return "never"
    wait = wait_text(waiting.due, now)
    return f"{time_text(waiting.due)} ({wait if waiting.due <= now else f'in {wait}'})"


def _failures_text(waiting: WaitingMessage, now: datetime) -> str:
    failures, eligible = waiting.message.attempts, waiting.next_attempt_at
    if eligible is None or eligible <= now:
        return str(failures)
    wait = wait_text(eligible, now)
    return f"{failures}; in back-off until {time_text(eligible)} (in {wait})"


def _aligned(values: dict[str, str]) -> list[str]:
    names = {name: make_printable(name) for name in values}
    widths: Sequence[int] = [cell_len(name) for name in names.values()]
    width = min(_WIDEST_NAME, max(widths, default=0))
    return [
        f"  {shown}{' ' * (width - cell_len(shown))}  {make_printable(values[name])}"
        for name, shown in names.items()
    ]
