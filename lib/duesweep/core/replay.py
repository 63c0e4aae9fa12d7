"""Makes a message of what the ledger's `errors` keep of it, as it would have been delivered."""

from collections.abc import Mapping
from dataclasses import dataclass

from duesweep.core.fault_headers import is_fault_header
from duesweep.core.headers import json as headers_json
from duesweep.core.headers import xml as headers_xml
from duesweep.core.message import Headers, Message
from duesweep.errors import UnreadableHeadersError


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """What a row of `errors` has. `headers` are None where they could not be read; `headers_text`
    is the text that the store had: JSON, or the MSMQ transport's XML.
    """

    key: str
    destination: str | None
    headers: Mapping[str, str | None] | None
    headers_text: str
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Replayable:
    """`message` as it is delivered, without a Due. `stored` are the headers for a store, which may
    have more: the MSMQ transport's dispatch properties. If the headers cannot be read,
    `message.headers` is the reason, and `stored` is empty.
    """

    message: Message
    stored: Headers


def make_replayable(kept: KeptMessage) -> Replayable:
    """The message without fault headers; its other headers and its body are as they were."""
    try:
        stored, delivered, text = _read(kept)
    except UnreadableHeadersError as error:
        return Replayable(_message(kept, error, kept.headers_text), {})
    faults = set(filter(is_fault_header, stored))
    if faults:
        text = headers_json.remove(text, faults)
        stored, delivered = _without(stored, faults), _without(delivered, faults)
    return Replayable(_message(kept, delivered, text), stored)


def _read(kept: KeptMessage) -> tuple[Headers, Headers, str]:
    """The headers as they were stored, as they are delivered, and the text of the latter."""
    text = kept.headers_text
    # The MSMQ transport reads no bytes at all as no headers.
    if text.lstrip("\ufeff \t\r\n").startswith("<") or (not text and kept.headers is not None):
        stored = headers_xml.read(text.encode())
        own, _ = headers_xml.split(stored)
        return stored, own, headers_json.write(own)
    stored = headers_json.read(text)
    # SQL persistence has the destination in a column, and sends a header of that name unchanged.
    forwarded = stored.get(headers_json.FORWARD_DESTINATION, "")
    if forwarded == kept.destination and headers_json.FORWARD_DESTINATION in stored:
        return stored, stored, headers_json.remove_forward_destination(text)
    return stored, stored, text


def _message(kept: KeptMessage, headers: Headers | UnreadableHeadersError, text: str) -> Message:
    return Message(kept.key, None, headers, text, kept.body, kept.destination)


def _without(headers: Headers, names: set[str]) -> Headers:
    return {name: value for name, value in headers.items() if name not in names}
