"""Rows of the MSMQ transport's delayed message store: headers in XML, the destination a column."""

import uuid
from collections.abc import Sequence
from typing import Any

from duesweep.core.headers import json as headers_json
from duesweep.core.headers import xml as headers_xml
from duesweep.core.message import MESSAGE_ID, Message
from duesweep.errors import MessageError, UnreadableHeadersError, make_storable
from duesweep.stores.values import NewMessage


def msmq_tables(endpoint: str, prefix: str | None) -> Sequence[str]:  # noqa: ARG001 - other kinds need it
    """The names that the table may have: the documentation has the first, the code of the
    transport's later versions takes the second.
    """
    return [f"{endpoint}.delayed", f"{endpoint}.timeouts"]


def msmq_message(  # noqa: PLR0917 - TableKind.read_message
    key: str, due_us: int | None, instant_us: int | None, row: Any, attempts: int
) -> Message:
    """The message in a claimed row; its headers travel as JSON."""
    # Where the column is NULL: an address that names no queue, not the endpoint's own one.
    destination = row.destination or ""
    try:
        headers, _ = headers_xml.split(headers_xml.read(row.headers))
    except UnreadableHeadersError as error:
        text = _text(row.headers)
        return Message(key, due_us, error, text, row.body, destination, attempts, instant_us)
    text = headers_json.write(headers)
    return Message(key, due_us, headers, text, row.body, destination, attempts, instant_us)


def msmq_headers(message: Message, stored: bytes | None) -> tuple[str | None, str]:
    """What the journal keeps of stored headers: JSON (None where they cannot be read), and text."""
    is_read = not isinstance(message.headers, MessageError)
    return (message.headers_text if is_read else None), _text(stored)


def msmq_row(message: NewMessage, endpoint: str) -> dict[str, object]:  # noqa: ARG001 - other kinds need it
    """The values of a new row, less its Time. The message's id is its key, as the transport has it;
    one without gets a new one.
    """
    text = message.stored_headers
    return {
        "message_key": message.headers.get(MESSAGE_ID) or str(uuid.uuid4()),
        "destination": message.destination,
        "headers": headers_xml.write(message.headers) if text is None else text.encode(),
        "body": message.body,
    }


def _text(stored: bytes | None) -> str:
    """Stored headers for people, whatever bytes they are."""
    return make_storable((stored or b"").decode("utf-8", "backslashreplace"))
