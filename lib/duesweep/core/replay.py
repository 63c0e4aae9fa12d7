"""Makes a message of what the ledger's `errors` keep of it, as it would have been delivered."""

from collections.abc import Mapping
from dataclasses import dataclass

from duesweep.core.errors import MessageError, UnreadableHeadersError, make_storable
from duesweep.core.fault_headers import is_fault_header
from duesweep.core.headers import json as headers_json
from duesweep.core.headers import xml as headers_xml
from duesweep.core.message import Headers, Message


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
    have more: the MSMQ transport's dispatch properties. `stored_text` is their text in the store;
    None: it had fault headers. If the headers cannot be read, `message.headers` is the reason, and
    `stored` is empty.
    """

    message: Message
    stored: Headers
    stored_text: str | None


def make_replayable(kept: KeptMessage, endpoint: str) -> Replayable:
    """The message without fault headers; its other headers and its body are as they were.

    `endpoint` is the name of the endpoint whose store had it: the ledger has it as the destination
    of messages for the endpoint's own queue.
    """
    try:
        found = _read(kept, endpoint)
    except UnreadableHeadersError as error:
        return Replayable(_message(kept, error, kept.headers_text), {}, None)
    faults = set(filter(is_fault_header, found.stored))
    return _without(found, faults) if faults else found


def _read(kept: KeptMessage, endpoint: str) -> Replayable:
    text = kept.headers_text
    # The MSMQ transport reads no bytes at all as no headers.
    if text.lstrip("\ufeff \t\r\n").startswith("<") or (not text and kept.headers is not None):
        stored = headers_xml.read(text.encode())
        own, _ = headers_xml.split(stored)
        return Replayable(_message(kept, own, headers_json.write(own)), stored, text)
    stored = headers_json.read(text)
    forwarded = stored.get(headers_json.FORWARD_DESTINATION)
    if kept.destination != make_storable(endpoint if forwarded is None else forwarded):
        # SQL persistence has the destination in a column, and sends all headers unchanged.
        return Replayable(_message(kept, stored, text), stored, text)
    sent = text
    if headers_json.FORWARD_DESTINATION in stored:
        sent = headers_json.remove_forward_destination(text)
    message = _message(kept, stored, sent)._replace(destination=forwarded)
    return Replayable(message, stored, text)


def _message(kept: KeptMessage, headers: Headers | UnreadableHeadersError, text: str) -> Message:
    return Message(kept.key, None, headers, text, kept.body, kept.destination)


def _without(found: Replayable, names: set[str]) -> Replayable:
    message = found.message
    assert not isinstance(message.headers, MessageError)  # else no names would be known
    cleaned = message._replace(
        headers=_others(message.headers, names),
        headers_text=headers_json.remove(message.headers_text, names),
    )
    return Replayable(cleaned, _others(found.stored, names), None)


def _others(headers: Headers, names: set[str]) -> Headers:
    return {name: value for name, value in headers.items() if name not in names}
