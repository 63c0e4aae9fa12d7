"""Values as SQL Server takes them."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

# Of a `datetime`, in a second.
_TICKS = 300
_FIRST = datetime(1753, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 12, 31, 23, 59, 59, 996_666, tzinfo=UTC)


def due_text(moment: datetime, timespec: str = "microseconds") -> str:
    """`moment` as T-SQL's style 121. The server's own texts of a Due have a digit more, which makes
    them exact: as a `datetime2(7)` it is one tick of a `datetime`, 1/300 s, and no other.
    """
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", timespec)


def bound_text(moment: datetime) -> str:
    """`moment`, or the first tick of a `datetime` after it. A Due is a tick, so it is before both
    or before neither. A moment outside the range of `datetime` becomes its first or last tick.
    """
    return _tick_text(moment, 0)


def last_text(end: datetime | None) -> str:
    """The last tick of a `datetime` before `end`; None: the last of all. No tick is before the
    first of all, which stands in.
    """
    if end is None:
        return _tick_text(_LAST, 0)
    return _tick_text(max(end, _FIRST + timedelta(microseconds=1)), -1)


def _tick_text(moment: datetime, more: int) -> str:
    """The first tick that is not before `moment`, and `more` ticks."""
    moment = min(max(moment, _FIRST), _LAST)
    ticks = -(-moment.microsecond * _TICKS // 1_000_000) + more
    seconds = moment.replace(microsecond=0) + timedelta(seconds=ticks // _TICKS)
    number = round(ticks % _TICKS * 10_000_000 / _TICKS)
    return f"{due_text(seconds, 'seconds')}.{number:07}"


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
