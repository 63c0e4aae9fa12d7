"""Times as people write them: durations (`1d2h3m4s5ms`), instants in ISO 8601 or relative to now;
and how soon messages come due, in a few steps that people think in.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from duesweep.core.errors import ConfigError

# The servers count a duration's seconds in 32 bits: 68 years.
LONGEST_DURATION = timedelta(days=24_855)

_DURATION = re.compile(
    r"(?:(?P<days>\d{1,9})d)?(?:(?P<hours>\d{1,9})h)?(?:(?P<minutes>\d{1,9})m(?!s))?"
    r"(?:(?P<seconds>\d{1,9})s)?(?:(?P<milliseconds>\d{1,9})ms)?",
    re.ASCII,
)
_TIME_SPAN = re.compile(r"(?:(\d{1,8})\.)?(\d\d):(\d\d):(\d\d)(?:\.(\d{1,7}))?", re.ASCII)


def parse_duration(text: str) -> timedelta:
    """The duration in `text`, for example `30s`, `500ms` or `1d2h3m4s5ms`.

    Raises `ConfigError` for any other text, also for a number without a unit.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None or not found[0]:
        raise ConfigError(
            f"{text!r} is not a duration",
            advice=(
                "write days, hours, minutes, seconds and milliseconds in this order, as in "
                "30s, 500ms or 1d2h3m4s5ms"
            ),
        )
    duration = timedelta(**{unit: int(count or 0) for unit, count in found.groupdict().items()})
    return check_duration(duration)


def parse_signed_duration(text: str) -> timedelta:
    """The duration in `text`, which a minus sign makes negative."""
    text = text.strip()
    return (
        -parse_duration(text[1:])
        if text.startswith("-")
        else parse_duration(text.removeprefix("+"))
    )


def check_duration(duration: timedelta) -> timedelta:
    """Return `duration`; raise `ConfigError` if it is negative or longer than servers can count."""
    if not timedelta() <= duration <= LONGEST_DURATION:
        raise ConfigError(
            f"A duration of {duration} cannot be used",
            advice=f"give one from 0 to {LONGEST_DURATION.days} days",
        )
    return duration


def read_time_span(text: str | None) -> timedelta | None:
    """The duration in a .NET header, `[d.]hh:mm:ss[.fffffff]`; None if `text` is not a duration."""
    found = _TIME_SPAN.fullmatch(text or "")
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
    microseconds = int((found[5] or "").ljust(7, "0")) // 10
    return timedelta(days, seconds, microseconds, minutes=minutes, hours=hours)


_NOW = "now"
_ADVICE = "write one as in 2026-12-01T08:00:00Z, or relative to now as in +2h or -1d12h"


@dataclass(frozen=True, slots=True)
class Moment:
    """An `instant`; None: the time that is `offset` after now, whatever the clock says."""

    instant: datetime | None = None
    offset: timedelta = timedelta()

    def at(self, now: datetime) -> datetime:
        """The instant in UTC, if it is `now` now."""
        return now + self.offset if self.instant is None else self.instant.astimezone(UTC)


def parse_moment(text: str) -> Moment:
    """The moment in `text`: `2026-12-01T08:00:00Z` or with another zone, `now`, `+2h`, `-1d12h`.

    Raises `ConfigError` for any other text, also for a time without a zone.
    """
    text = text.strip()
    if text == _NOW:
        return Moment()
    if text[:1] in {"+", "-"}:
        length = parse_duration(text[1:])
        return Moment(offset=length if text[0] == "+" else -length)
    try:
        instant = datetime.fromisoformat(text)
        has_zone = instant.tzinfo is not None
        instant = instant.astimezone(UTC) if has_zone else instant
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"{text!r} is not a time", advice=_ADVICE) from error
    if not has_zone:
        raise ConfigError(f"The time {text!r} has no time zone", advice=_ADVICE)
    return Moment(instant)


# The names in JSON; each but the last ends where the next one begins.
BUCKETS = ("overdue", "in_1_min", "in_5_min", "in_1_h", "in_1_d", "later")
_ENDS = (
    timedelta(),
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(hours=1),
    timedelta(days=1),
)


def bucket_ends(now: datetime) -> list[datetime]:
    """The instants at which all buckets but the last end."""
    return [now + end for end in _ENDS]


def bucket_of(due: datetime | None, ends: Sequence[datetime]) -> int:
    """The number of the bucket of a Due; None, which never comes, is in the last one."""
    return len(ends) if due is None else bisect_right(ends, due)
