"""Pauses beside a store: how they are kept, and how a plan leaves out what is paused."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from duesweep.core.headers.json import FORWARD_DESTINATION
from duesweep.core.patterns import EVERYTHING
from duesweep.core.pauses import Pause
from duesweep.stores.relational.summary import aware

_ANY = "%"
# What is before the destination in headers in JSON.
FORWARDED_TO = f'"{FORWARD_DESTINATION}":"'
# A backslash is LIKE's escape. `[` is special on SQL Server only, and may be escaped everywhere.
_SPECIAL = "\\%_["


def destination_like(pattern: str) -> Sequence[str]:
    """For a column with the destination."""
    like = _ANY.join(map(_escaped, pattern.split("*")))
    # A name fits addresses that begin with it (`core.patterns.fits_destination`).
    is_name = "*" not in pattern and "@" not in pattern
    return [like, f"{like}@{_ANY}"] if is_name else [like]


def forwarded_like(pattern: str) -> Sequence[str]:
    """For what follows `FORWARDED_TO` in headers in JSON. A quote within a value is escaped, so
    this is found in no value. What follows a `*` could be found in the next headers, and messages
    for the endpoint itself have no such header: their claims tell.
    """
    if pattern == EVERYTHING:
        return [_ANY]
    start, star, rest = pattern.partition("*")
    if rest:
        return []
    text = json.dumps(start, ensure_ascii=False)[1:-1]
    # Without a star: the whole value, or the name before an `@`.
    ends = [""] if star else ['"'] if "@" in start else ['"', "@"]
    # NServiceBus escapes slashes, others need not.
    texts = dict.fromkeys((text, text.replace("/", "\\/")))
    return [_escaped(f"{each}{end}") + _ANY for each in texts for end in ends]


def headers_like(pattern: str) -> Sequence[str]:
    """For all headers in JSON, as `forwarded_like`."""
    if pattern == EVERYTHING:
        return [_ANY]
    return [_ANY + _escaped(FORWARDED_TO) + each for each in forwarded_like(pattern)]


def _escaped(text: str) -> str:
    return "".join(f"\\{sign}" if sign in _SPECIAL else sign for sign in text)


def pause_of(row: Any) -> Pause:
    """The pause in a row of `read_pauses`."""
    until: datetime | None = None if row.until_at is None else aware(row.until_at)
    return Pause(row.pattern, aware(row.paused_at), until, row.given_by, row.reason)
