"""Rows with headers in JSON; the destination is among them, or in a column."""

from collections.abc import Iterable, Sequence
from typing import Any

from duesweep.core.headers import json as headers_json
from duesweep.core.message import Message
from duesweep.errors import MessageError, UnreadableHeadersError
from duesweep.stores.values import NewMessage


def json_message(  # noqa: PLR0917 - TableKind.read_message
    key: str, due_us: int | None, instant_us: int | None, row: Any, attempts: int
) -> Message:
    """The message in a claimed row; one whose headers cannot be read has the reason in their
    place.
    """
    text, body = row.headers, row.body
    try:
        headers = headers_json.read(text)
    except UnreadableHeadersError as error:
        return Message(key, due_us, error, text or "", body, None, attempts, instant_us)
    destination = headers.get(headers_json.FORWARD_DESTINATION)
    assert text is not None  # else it could not be read
    if headers_json.FORWARD_DESTINATION in headers:
        text = headers_json.remove_forward_destination(text)
    return Message(key, due_us, headers, text, body, destination, attempts, instant_us)


def json_message_with_destination(  # noqa: PLR0917 - TableKind.read_message
    key: str, due_us: int | None, instant_us: int | None, row: Any, attempts: int
) -> Message:
    """The message in a claimed row with a column `destination`; its headers are sent unchanged."""
    # NULL is an address that names no queue, and not the endpoint's own queue.
    destination, text = row.destination or "", row.headers or ""
    try:
        headers = headers_json.read(row.headers)
    except UnreadableHeadersError as error:
        return Message(key, due_us, error, text, row.body, destination, attempts, instant_us)
    return Message(key, due_us, headers, text, row.body, destination, attempts, instant_us)


def json_headers(message: Message, stored: str | None) -> tuple[str | None, str]:
    """What the journal keeps of stored headers: JSON (None where they cannot be read), and text."""
    text = stored or ""
    return (None if isinstance(message.headers, MessageError) else text), text


def json_row(message: NewMessage, endpoint: str) -> dict[str, object]:  # noqa: ARG001 - other kinds need it
    """The values of a new row, less its Due; the table gives it a key."""
    text = message.stored_headers
    if text is None:
        headers = headers_json.set_forward_destination(message.headers, message.destination)
        text = headers_json.write(headers)
    return {"headers": text, "body": message.body}


def destinations(rows: Iterable[Any]) -> Sequence[str]:
    """The distinct destinations of rows, as a column or in their headers; the endpoint's own queue
    left out, and what cannot be read.
    """
    found = (row.destination or _forwarded_to(row.headers) for row in rows)
    return list(dict.fromkeys(filter(None, found)))


def _forwarded_to(headers: object) -> str | None:
    # Where headers are bytes, or the destination is a column, they tell of none.
    if not isinstance(headers, str):
        return None
    try:
        return headers_json.read(headers).get(headers_json.FORWARD_DESTINATION)
    except UnreadableHeadersError:
        return None
