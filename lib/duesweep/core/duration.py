"""Durations as people write them, `1d2h3m4s5ms`, and as SQL statements need them."""

import re
from datetime import timedelta
from typing import NamedTuple

from duesweep.core.errors import ConfigError

# The servers count a duration's seconds in 32 bits: 68 years.
LONGEST = timedelta(days=24_855)

_PATTERN = re.compile(
    r"(?:(?P<days>\d{1,9})d)?(?:(?P<hours>\d{1,9})h)?(?:(?P<minutes>\d{1,9})m(?!s))?"
    r"(?:(?P<seconds>\d{1,9})s)?(?:(?P<milliseconds>\d{1,9})ms)?",
    re.ASCII,
)
_MILLISECOND = timedelta(milliseconds=1)
_TIME_SPAN = re.compile(r"(?:(\d{1,8})\.)?(\d\d):(\d\d):(\d\d)(?:\.(\d{1,7}))?", re.ASCII)


class Parts(NamedTuple):
    """A duration in whole numbers, each less than one of the next larger unit."""

    days: int
    hours: int
    minutes: int
    seconds: int
    milliseconds: int


def parse(text: str) -> timedelta:
    """The duration in `text`, for example `30s`, `500ms` or `1d2h3m4s5ms`.

    Raises `ConfigError` for any other text, also for a number without a unit.
    """
    found = _PATTERN.fullmatch(text.strip())
    if found is None or not found[0]:
        raise ConfigError(
            f"{text!r} is not a duration",
            advice=(
                "write days, hours, minutes, seconds and milliseconds in this order, as in "
                "30s, 500ms or 1d2h3m4s5ms"
            ),
        )
    duration = timedelta(**{unit: int(count or 0) for unit, count in found.groupdict().items()})
    return check_length(duration)


def parse_signed(text: str) -> timedelta:
    """The duration in `text`, which a minus sign makes negative."""
    text = text.strip()
    return -parse(text[1:]) if text.startswith("-") else parse(text.removeprefix("+"))


def check_length(duration: timedelta) -> timedelta:
    """Return `duration`; raise `ConfigError` if it is negative or longer than servers can count."""
    if not timedelta() <= duration <= LONGEST:
        raise ConfigError(
            f"A duration of {duration} cannot be used",
            advice=f"give one from 0 to {LONGEST.days} days",
        )
    return duration


def split(duration: timedelta) -> Parts:
    """`duration` in days, hours, minutes, seconds and milliseconds; the rest is cut off."""
    milliseconds = duration // _MILLISECOND
    seconds, milliseconds = divmod(milliseconds, 1_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return Parts(days, hours, minutes, seconds, milliseconds)


def write_time_span(duration: timedelta) -> str:
    """`duration` as .NET writes it into a header, `[d.]hh:mm:ss[.fffffff]`; not negative."""
    minutes, seconds = divmod(duration.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days = f"{duration.days}." if duration.days else ""
    ticks = f".{duration.microseconds:06}0" if duration.microseconds else ""
    return f"{days}{hours:02}:{minutes:02}:{seconds:02}{ticks}"


def read_time_span(text: str | None) -> timedelta | None:
    """The duration in a .NET header, `[d.]hh:mm:ss[.fffffff]`; None if `text` is not a duration."""
    found = _TIME_SPAN.fullmatch(text or "")
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
    microseconds = int((found[5] or "").ljust(7, "0")) // 10
    return timedelta(days, seconds, microseconds, minutes=minutes, hours=hours)
