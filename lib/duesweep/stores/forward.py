"""The destinations of stored messages, as texts.

Headers in JSON are cut before the forward destination, if it is their last one. For each message
the plan has a short text, `forward`: the text after `_LAST_HEADER` if NServiceBus wrote them, all
from the comma on if another writer did, and "" without a destination. The server tests pauses by
patterns for LIKE.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from duesweep.core.address import Addresses
from duesweep.core.errors import UnreadableHeadersError, UnusualBatchError
from duesweep.core.headers import FORWARD_DESTINATION, read_json, read_json_text
from duesweep.core.message import Address
from duesweep.core.routing import EVERYTHING

_ANY = "%"
# The text before the destination in headers in JSON, as NServiceBus writes it: without white space.
_NAME = f'"{FORWARD_DESTINATION}"'
FORWARDED_TO = f'{_NAME}:"'
_LAST_HEADER = f",{FORWARDED_TO}"
_END = '"}'
_NOT_LAST = "a destination is not the last header"
# The last header of others, from its comma to the end.
_WHITE = r"[ \t\r\n]*"
_SPACED_HEADER = re.compile(
    rf',{_WHITE}{re.escape(_NAME)}{_WHITE}:{_WHITE}("(?:[^"\\]|\\.)*"){_WHITE}\}}\Z'
)
# A backslash is LIKE's escape. `[` is special on SQL Server only, and may be escaped everywhere.
_SPECIAL = "\\%_["


def destinations(rows: Iterable[Any]) -> Sequence[str]:
    """The distinct destinations of rows, as a column or in their headers; the endpoint's own queue
    left out, and unreadable ones.
    """
    found = (row.destination or _forwarded_to(row.headers) for row in rows)
    return list(dict.fromkeys(filter(None, found)))


def _forwarded_to(headers: object) -> str | None:
    # If headers are bytes, or the destination is a column, they have none.
    if not isinstance(headers, str):
        return None
    try:
        return read_json(headers).get(FORWARD_DESTINATION)
    except UnreadableHeadersError:
        return None


def split_headers(text: str) -> tuple[str, str]:
    """The headers before the forward destination, and the `forward`."""
    before, found, forward = text.partition(_LAST_HEADER)
    if found and not forward:
        raise UnusualBatchError(_NOT_LAST)
    spaced = None if found else _SPACED_HEADER.search(text)
    return (before, forward) if spaced is None else (text[: spaced.start()], spaced[0])


def cut_off(forward: str) -> str:
    """All that is cut off from headers with this `forward`."""
    return _LAST_HEADER + forward if forward and not _SPACED_HEADER.match(forward) else forward


def forwarded_to(forward: str) -> Address:
    """The address in a `forward`.

    Raises `UnusualBatchError` where the destination is not the last header.
    """
    if not forward:
        return None
    spaced = _SPACED_HEADER.match(forward)
    if spaced is None and not forward.endswith(_END):
        raise UnusualBatchError(_NOT_LAST)
    try:
        return read_json_text(f'"{forward.removesuffix("}")}' if spaced is None else spaced[1])
    except UnreadableHeadersError as error:
        raise UnusualBatchError(f"{_NOT_LAST}: {error}") from error


# Pauses as the server tests them.


def destination_like(pattern: str, addresses: Addresses) -> Sequence[str]:
    """For a column with the destination."""
    like = _ANY.join(map(_escaped, pattern.split("*")))
    if "*" in pattern:
        return [like]
    begins = [f"{like}@{_ANY}"] if _may_precede_at(pattern) else []
    return [like, *begins, *map(_escaped, addresses.in_full(pattern))]


def forwarded_like(pattern: str, addresses: Addresses) -> Sequence[str]:
    """For the text after `FORWARDED_TO` in headers in JSON. A quote within a value is escaped, so
    this is found in no value. Text after a `*` could be found in the next headers, and messages
    for the endpoint itself have no such header: their claims tell.
    """
    if pattern == EVERYTHING:
        return [_ANY]
    start, star, rest = pattern.partition("*")
    if rest:
        return []
    if star:
        begins = [_in_json(start)]
    else:
        begins = [f'{_in_json(each)}"' for each in (start, *addresses.in_full(start))]
        begins += [f"{_in_json(start)}@"] if _may_precede_at(start) else []
    # NServiceBus escapes slashes, others need not.
    texts = dict.fromkeys(text for each in begins for text in (each, each.replace("/", "\\/")))
    return [_escaped(each) + _ANY for each in texts]


def headers_like(pattern: str, addresses: Addresses) -> Sequence[str]:
    """For all headers in JSON, as `forwarded_like`."""
    if pattern == EVERYTHING:
        return [_ANY]
    return [_ANY + _escaped(FORWARDED_TO) + each for each in forwarded_like(pattern, addresses)]


def _may_precede_at(name: str) -> bool:
    """Whether addresses with this text before their first `@` have it as the queue's name. In one
    that begins with a quote, the name may be another.
    """
    return "@" not in name and not name.startswith('"')


def _in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _escaped(text: str) -> str:
    return "".join(f"\\{sign}" if sign in _SPECIAL else sign for sign in text)
