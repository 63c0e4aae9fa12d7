"""A row of a delayed table with headers in JSON as a message."""

from duesweep.errors import UnreadableHeadersError
from duesweep.headers import json as headers_json
from duesweep.message import Message


def json_message(
    key: str, due_us: int | None, text: str | None, body: bytes | None, attempts: int
) -> Message:
    """The message; one whose headers cannot be read has the reason in their place."""
    try:
        headers = headers_json.read(text)
    except UnreadableHeadersError as error:
        return Message(key, due_us, error, text or "", body, None, attempts)
    destination = headers.get(headers_json.FORWARD_DESTINATION)
    assert text is not None  # else it could not be read
    if headers_json.FORWARD_DESTINATION in headers:
        text = headers_json.without_forward_destination(text)
    return Message(key, due_us, headers, text, body, destination, attempts)
