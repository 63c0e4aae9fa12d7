"""Exhausted messages as rows of a table, as text and as JSON."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from duesweep.core.errors import make_printable
from duesweep.core.exhausted import ErrorGroup, ErrorId, ErrorRow
from duesweep.exhausted import Fate
from duesweep.ledger.base import LedgerRow
from duesweep.report.bodies import view_body
from duesweep.report.quantities import size_text, time_text
from duesweep.report.text import Cell, Column, Row

GROUP_COLUMNS = (
    Column("group", least=None),
    Column("open", is_number=True, least=None),
    Column("replayed", is_number=True, least=None),
    Column("discarded", is_number=True, least=None),
    Column("first (UTC)", least=None),
    Column("last (UTC)", least=None),
    Column("error", least=12),
    Column("destination", least=12),
    Column("type", least=12),
    Column("example", least=None),
)
ROW_COLUMNS = (
    Column("failed (UTC)", least=None),
    Column("state", least=None),
    Column("message id", least=None),
    Column("error", least=12),
    Column("destination", least=12),
    Column("type", least=12),
    Column("text", least=12),
)


def group_row(group: ErrorGroup) -> Row:
    """A group's cells in the order of `GROUP_COLUMNS`."""
    row = group.example
    return [
        group.id,
        Cell(f"{group.open:,}", "red") if group.open else "0",
        f"{group.replayed:,}",
        f"{group.discarded:,}",
        _short_time(group.first),
        _short_time(group.last),
        short_class(row.error_class),
        row.destination or "",
        row.message_type or "",
        row.message_id or row.id.key,
    ]


def error_row(row: ErrorRow, fate: Fate | None) -> Row:
    """An error's cells in the order of `ROW_COLUMNS`."""
    return [
        _short_time(row.last_failed_at),
        Cell("open", "red") if fate is None else fate.kind.value,
        row.message_id or row.id.key,
        short_class(row.error_class),
        row.destination or "",
        row.message_type or "",
        row.error_text,
    ]


def short_class(name: str) -> str:
    """The class of an error without its module."""
    return name.rpartition(".")[2]


def group_document(group: ErrorGroup) -> dict[str, Any]:
    """A group for JSON."""
    row = group.example
    return {
        "group": group.id,
        "error_class": row.error_class,
        "destination": row.destination,
        "message_type": row.message_type,
        "count": group.count,
        "open": group.open,
        "replayed": group.replayed,
        "discarded": group.discarded,
        "first_failed_at": group.first.isoformat(),
        "last_failed_at": group.last.isoformat(),
        "example": {
            "message_id": row.message_id,
            "key": row.id.key,
            "sweep_id": row.id.sweep_id,
            "error_text": row.error_text,
        },
    }


def error_document(row: ErrorRow, fate: Fate | None) -> dict[str, Any]:
    """An error for JSON, without headers, body and stack."""
    return {
        "key": row.id.key,
        "sweep_id": row.id.sweep_id,
        "group": row.group,
        "message_id": row.message_id,
        "message_type": row.message_type,
        "destination": row.destination,
        "attempts": row.attempts,
        "first_failed_at": row.first_failed_at.isoformat(),
        "last_failed_at": row.last_failed_at.isoformat(),
        "error_class": row.error_class,
        "error_text": row.error_text,
        "state": "open" if fate is None else fate.kind.value,
    }


def details_document(
    row: ErrorRow, fate: Fate | None, details: LedgerRow, changes: Sequence[LedgerRow]
) -> dict[str, Any]:
    """All of an error for JSON; the body is in base64."""
    body = details["body"]
    return error_document(row, fate) | {
        "headers": details["headers"],
        "headers_text": details["headers_text"],
        "body": None if body is None else base64.b64encode(body).decode(),
        "stack": details["stack"],
        "changes": [{name: _plain(value) for name, value in change.items()} for change in changes],
    }


def details_lines(row: ErrorRow, details: LedgerRow, changes: Sequence[LedgerRow]) -> Iterator[str]:
    """All of an error as lines that can be printed, the longest last."""
    facts = {
        "message id": row.message_id or "none",
        "key": row.id.key,
        "type": row.message_type or "unknown",
        "destination": row.destination or "unknown",
        "group": row.group,
        "sweep": row.id.sweep_id,
        "attempts": f"{row.attempts}, from {time_text(row.first_failed_at)} to "
        f"{time_text(row.last_failed_at)}",
        "error": f"{row.error_class}: {row.error_text}",
    }
    yield from _aligned(facts)
    for change in changes:
        yield make_printable(change_text(change))
    yield from _headers_lines(details)
    yield from _body_lines(details["body"])
    yield from ("", "stack:")
    yield from map(make_printable, (details["stack"] or "").splitlines())


def change_text(change: Mapping[str, Any]) -> str:
    """What an operator did with an error, as a sentence."""
    where = f" to {change['queue']}" if change["queue"] else ""
    where += f" into the store as {change['new_key']}" if change.get("new_key") else ""
    why = f": {change['reason']}" if change["reason"] else ""
    when = time_text(change["changed_at"])
    return f"{change['change']}{where} on {when} by {change['given_by']}{why}"


def fate_text(error: ErrorId, fate: Fate) -> str:
    """What was done with an error before, as a sentence."""
    done = {
        "change": fate.kind.value,
        "queue": fate.queue,
        "reason": fate.reason,
        "changed_at": fate.changed_at,
        "given_by": fate.given_by,
    }
    return f"{error.key} was {change_text(done)}"


def _headers_lines(details: LedgerRow) -> Iterator[str]:
    yield from ("", "headers:")
    headers = details["headers"]
    # Where they cannot be read, their text has to tell why.
    if headers is None:
        yield from map(make_printable, (details["headers_text"] or "").splitlines())
    else:
        yield from _aligned(headers)


def _body_lines(body: bytes | None) -> Iterator[str]:
    yield ""
    if body is None:
        yield "no body"
        return
    view = view_body(body)
    yield f"body, {size_text(len(body))}, as {view.form}{', its beginning' if view.is_cut else ''}:"
    yield from view.lines


def _aligned(facts: Mapping[str, str | None]) -> Iterator[str]:
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        shown = "null" if value is None else make_printable(value)
        yield f"{make_printable(name):<{width}}  {shown}".rstrip()


def _short_time(moment: datetime) -> str:
    return time_text(moment).removesuffix(" UTC")


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value
