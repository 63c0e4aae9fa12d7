"""Pauses beside a store: how they are kept, and how a plan leaves out what is paused."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from duesweep.core.address import TableName, quote_name
from duesweep.core.headers.json import FORWARD_DESTINATION
from duesweep.core.patterns import EVERYTHING
from duesweep.core.pauses import Pause
from duesweep.stores.relational.summary import aware

_ANY = "%"
# What is before the destination in headers in JSON.
FORWARDED_TO = f'"{FORWARD_DESTINATION}":"'
# A backslash is LIKE's escape. `[` is special on SQL Server only, and may be escaped everywhere.
_SPECIAL = "\\%_["


def destination_like(pattern: str, schema: str | None) -> Sequence[str]:
    """For a column with the destination."""
    like = _ANY.join(map(_escaped, pattern.split("*")))
    if "*" in pattern:
        return [like]
    begins = [f"{like}@{_ANY}"] if _may_precede_at(pattern) else []
    return [like, *begins, *map(_escaped, _in_full(pattern, schema))]


def forwarded_like(pattern: str, schema: str | None) -> Sequence[str]:
    """For what follows `FORWARDED_TO` in headers in JSON. A quote within a value is escaped, so
    this is found in no value. What follows a `*` could be found in the next headers, and messages
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
        begins = [f'{_in_json(each)}"' for each in (start, *_in_full(start, schema))]
        begins += [f"{_in_json(start)}@"] if _may_precede_at(start) else []
    # NServiceBus escapes slashes, others need not.
    texts = dict.fromkeys(text for each in begins for text in (each, each.replace("/", "\\/")))
    return [_escaped(each) + _ANY for each in texts]


def headers_like(pattern: str, schema: str | None) -> Sequence[str]:
    """For all headers in JSON, as `forwarded_like`."""
    if pattern == EVERYTHING:
        return [_ANY]
    return [_ANY + _escaped(FORWARDED_TO) + each for each in forwarded_like(pattern, schema)]


def _may_precede_at(name: str) -> bool:
    """Whether addresses with this text before their first `@` have it as the queue's name. In one
    that begins with a quote, the name may be another.
    """
    return "@" not in name and not name.startswith('"')


def _in_full(name: str, schema: str | None) -> Sequence[str]:
    """The addresses on PostgreSQL, written in full, whose queue has this name."""
    if schema is None or "@" in name:
        return ()
    return quote_name(name), str(TableName(schema, name))


def _in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _escaped(text: str) -> str:
    return "".join(f"\\{sign}" if sign in _SPECIAL else sign for sign in text)


def pause_of(row: Any) -> Pause:
    """The pause in a row of `read_pauses`."""
    until: datetime | None = None if row.until_at is None else aware(row.until_at)
    return Pause(row.pattern, aware(row.paused_at), until, row.given_by, row.reason)
