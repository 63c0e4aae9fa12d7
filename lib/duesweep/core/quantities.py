"""Times and sizes as people read them: rounded, with units. JSON has the raw numbers."""

from datetime import UTC, datetime

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_SIZES = ("bytes", "kB", "MB", "GB", "TB")
_STEP = 1_000


def duration_text(milliseconds: float) -> str:
    """A duration in its two largest units, rounded, as in `3 h 12 min`; not negative."""
    if round(milliseconds) < _SECOND:
        return f"{round(milliseconds)} ms"
    if round(milliseconds / 100) < 100:  # noqa: PLR2004 - below 10.0 s
        return f"{milliseconds / _SECOND:.1f} s"
    if round(milliseconds / _SECOND) < _MINUTE // _SECOND:
        return f"{round(milliseconds / _SECOND)} s"
    if round(milliseconds / _SECOND) < _HOUR // _SECOND:
        return _two_units(round(milliseconds / _SECOND), "min", "s", 60)
    if round(milliseconds / _MINUTE) < _DAY // _MINUTE:
        return _two_units(round(milliseconds / _MINUTE), "h", "min", 60)
    return _two_units(round(milliseconds / _HOUR), "d", "h", 24)


def size_text(count: int) -> str:
    """A number of bytes with three digits or more, as in `12.3 MB`; units are powers of 1,000."""
    size, unit = float(count), 0
    while unit + 1 < len(_SIZES) and round(size, 1 if unit else 0) >= _STEP:
        size, unit = size / _STEP, unit + 1
    return f"{size:,.1f} {_SIZES[unit]}" if unit else f"{count} {_SIZES[0]}"


def time_text(moment: datetime) -> str:
    """An aware time in UTC, to the second."""
    return f"{short_time(moment)} UTC"


def short_time(moment: datetime) -> str:
    """The same where a title says UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def count_text(count: int, noun: str) -> str:
    """A number of things, as in `1 message`, `1,200 messages` or `2 sweeps or commands`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun.replace(' or ', 's or ')}s"


def _two_units(total: int, large: str, small: str, ratio: int) -> str:
    return f"{total // ratio:,} {large} {total % ratio} {small}"
