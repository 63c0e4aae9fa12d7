"""Messages that exhausted their attempts, as the ledger's `errors` has them, and the message
that is made of such a row to be delivered again.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from duesweep.core.change import spellings
from duesweep.core.errors import MessageError, UnreadableHeadersError, make_storable
from duesweep.core.headers import (
    FORWARD_DESTINATION,
    Headers,
    read_json,
    read_xml,
    remove_forward_destination,
    remove_headers,
    split_properties,
    write_json,
)
from duesweep.core.message import Message, is_fault_header
from duesweep.core.routing import fits_any, fits_destination

_GROUP_DIGITS = 8


class ErrorId(NamedTuple):
    """Which row of `errors` it is: the sweep that gave the message up, and the message's key."""

    sweep_id: str
    key: str


class ErrorRow(NamedTuple):
    """A row of `errors` without large columns. `destination` None: the endpoint's own queue."""

    id: ErrorId
    message_id: str | None
    message_type: str | None
    destination: str | None
    attempts: int
    first_failed_at: datetime
    last_failed_at: datetime
    error_class: str
    error_text: str

    @property
    def group(self) -> str:
        """The short id of its group, which stays the same: rows with the same class of error,
        destination and message type.
        """
        text = json.dumps([self.error_class, self.destination, self.message_type])
        return hashlib.sha256(text.encode()).hexdigest()[:_GROUP_DIGITS]


@dataclass(frozen=True, slots=True)
class ErrorFilter:
    """Which errors an operator means. All conditions have to hold; no condition: all errors.

    `ids` are message ids or keys. `error_class`, `destination` and `message_type` are patterns in
    which `*` stands for any text; a class may be given without its module. `since` and `until` are
    about the last failure; `until` is not included.
    """

    ids: tuple[str, ...] = ()
    group: str | None = None
    error_class: str | None = None
    destination: str | None = None
    message_type: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_empty(self) -> bool:
        return self == ErrorFilter()

    def matches(self, row: ErrorRow) -> bool:
        return (
            self._is_named(row)
            and self._is_in_time(row.last_failed_at)
            and fits_any(self.error_class, (row.error_class, row.error_class.rpartition(".")[2]))
            and self._fits_destination(row.destination)
            and fits_any(self.message_type, [row.message_type])
        )

    def _fits_destination(self, address: str | None) -> bool:
        pattern = self.destination
        return pattern is None or (address is not None and fits_destination(address, pattern))

    def _is_named(self, row: ErrorRow) -> bool:
        if self.group is not None and row.group != self.group:
            return False
        return not self.ids or not _names(self.ids).isdisjoint((row.id.key, row.message_id))

    def _is_in_time(self, failed_at: datetime) -> bool:
        begins = self.since is None or failed_at >= self.since
        return begins and (self.until is None or failed_at < self.until)


@lru_cache(maxsize=1)
def _names(ids: tuple[str, ...]) -> set[str | None]:
    """The possible spellings of these ids; the same for all rows."""
    return {*spellings(ids)}


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """A whole row of `errors`. `headers` are None if they could not be read; `headers_text`
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
        stored = read_xml(text.encode())
        own, _ = split_properties(stored)
        return Replayable(_message(kept, own, write_json(own)), stored, text)
    stored = read_json(text)
    forwarded = stored.get(FORWARD_DESTINATION)
    if kept.destination != make_storable(endpoint if forwarded is None else forwarded):
        # SQL persistence has the destination in a column, and sends all headers unchanged.
        return Replayable(_message(kept, stored, text), stored, text)
    sent = text
    if FORWARD_DESTINATION in stored:
        sent = remove_forward_destination(text)
    message = _message(kept, stored, sent)._replace(destination=forwarded)
    return Replayable(message, stored, text)


def _message(kept: KeptMessage, headers: Headers | UnreadableHeadersError, text: str) -> Message:
    return Message(kept.key, None, headers, text, kept.body, kept.destination)


def _without(found: Replayable, names: set[str]) -> Replayable:
    message = found.message
    assert not isinstance(message.headers, MessageError)  # else no names would be known
    cleaned = message._replace(
        headers=_others(message.headers, names),
        headers_text=remove_headers(message.headers_text, names),
    )
    return Replayable(cleaned, _others(found.stored, names), None)


def _others(headers: Headers, names: set[str]) -> Headers:
    return {name: value for name, value in headers.items() if name not in names}
