"""Values as SQL Server takes them."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from uuid import UUID


def due_text(moment: datetime, timespec: str = "microseconds") -> str:
    """`moment` as T-SQL's style 121. The server's own texts of a Due have a digit more, which makes
    them exact: as a `datetime2(7)` it is one tick of a `datetime`, 1/300 s, and no other.
    """
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", timespec)


def due_of(text: str) -> datetime:
    """The moment that `due_text` wrote."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def adapted(values: Mapping[str, object]) -> dict[str, object]:
    """`values` with instants, ids and flags as T-SQL reads them, and lists as JSON."""
    return {name: _value(value) for name, value in values.items()}


def _value(value: object) -> object:
    match value:
        case datetime():
            return due_text(value)
        case UUID():
            return str(value)
        case bool():
            return int(value)
        case list():
            return json.dumps(value, ensure_ascii=False)
    return value
