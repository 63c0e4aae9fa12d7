"""Messages that exhausted their attempts, as the ledger's `errors` has them, and the message
that is made of such a row to be stored again.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from duesweep.core.change import ChangeKind, spellings
from duesweep.core.errors import UnreadableHeadersError, make_storable
from duesweep.core.headers import (
    FORWARD_DESTINATION,
    Headers,
    read_json,
    read_xml,
    remove_headers,
    write_xml,
)
from duesweep.core.message import Message, first_type, is_fault_header
from duesweep.core.routing import fits_any, fits_destination

_GROUP_DIGITS = 8


class ErrorId(NamedTuple):
    """Which row of `errors` it is: the sweep that gave the message up, and the message's key."""

    sweep_id: str
    key: str


class ErrorRow(NamedTuple):
    """A row of `errors` without large columns, with its fate, the last row of `changes` about it:
    `change` None: it is open. `destination` None: it cannot be read.

    It may count `messages` with the same class, destination, types and `change`: then it is the row
    of the last failure, and `failed_from` is the first one's time.
    """

    sweep_id: str
    message_key: str
    message_id: str | None
    destination: str | None
    attempts: int
    first_failed_at: datetime
    last_failed_at: datetime
    error_class: str
    error_text: str | None
    enclosed_types: str | None
    failed_from: datetime
    messages: int = 1
    change: ChangeKind | None = None
    changed_at: datetime | None = None
    given_by: str | None = None
    reason: str | None = None
    queue: str | None = None
    new_key: str | None = None

    @property
    def id(self) -> ErrorId:
        return ErrorId(self.sweep_id, self.message_key)

    @property
    def key(self) -> str:
        return self.message_key

    @property
    def message_type(self) -> str | None:
        return first_type(self.enclosed_types)

    @property
    def state(self) -> str:
        """`open`, or its last fate."""
        return "open" if self.change is None else self.change.value

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

    @property
    def has_patterns(self) -> bool:
        """Whether it means errors of some classes, destinations or types only."""
        patterns = {self.group, self.error_class, self.destination, self.message_type}
        return patterns != {None}

    def matches(self, row: ErrorRow) -> bool:
        address, pattern = row.destination, self.destination
        return (
            (self.group is None or row.group == self.group)
            and (not self.ids or not _names(self.ids).isdisjoint((row.key, row.message_id)))
            and (self.since is None or row.last_failed_at >= self.since)
            and (self.until is None or row.last_failed_at < self.until)
            and fits_any(self.error_class, (row.error_class, row.error_class.rpartition(".")[2]))
            and (pattern is None or (address is not None and fits_destination(address, pattern)))
            and fits_any(self.message_type, [row.message_type])
        )


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


def as_stored(kept: KeptMessage, endpoint: str) -> Message:
    """The message as its store had it, without fault headers and a Due; `headers_text` is the text
    that the store had. If the headers cannot be read, `headers` is the reason.

    `endpoint` is the name of the endpoint whose store had it: the ledger has it as the destination
    of messages for the endpoint's own queue.
    """
    text = kept.headers_text
    # The MSMQ transport reads no bytes at all as no headers.
    is_xml = text.lstrip("\ufeff \t\r\n").startswith("<") or not (text or kept.headers is None)
    try:
        headers = read_xml(text.encode()) if is_xml else read_json(text)
    except UnreadableHeadersError as error:
        return Message(kept.key, None, error, text, kept.body, kept.destination)
    if faults := set(filter(is_fault_header, headers)):
        headers = {name: value for name, value in headers.items() if name not in faults}
        text = write_xml(headers).decode() if is_xml else remove_headers(text, faults)
    destination = kept.destination if is_xml else _destination(kept, headers, endpoint)
    return Message(kept.key, None, headers, text, kept.body, destination)


def _destination(kept: KeptMessage, headers: Headers, endpoint: str) -> str | None:
    """Its destination; None: the endpoint's own queue."""
    forwarded = headers.get(FORWARD_DESTINATION)
    if kept.destination == make_storable(endpoint if forwarded is None else forwarded):
        return forwarded
    # SQL persistence has the destination in a column.
    return kept.destination
