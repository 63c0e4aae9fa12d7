"""Times as people write them: an instant in ISO 8601, or one that is relative to now."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from duesweep.core import duration
from duesweep.core.errors import ConfigError

_NOW = "now"
_ADVICE = "write one as in 2026-12-01T08:00:00Z, or from now on as in +2h or -1d12h"


@dataclass(frozen=True, slots=True)
class Moment:
    """An `instant`; None: the time that is `offset` after now, whatever the clock says."""

    instant: datetime | None = None
    offset: timedelta = timedelta()

    def at(self, now: datetime) -> datetime:
        """The instant in UTC, if it is `now` now."""
        return now + self.offset if self.instant is None else self.instant.astimezone(UTC)


def parse(text: str) -> Moment:
    """The moment in `text`: `2026-12-01T08:00:00Z` or with another zone, `now`, `+2h`, `-1d12h`.

    Raises `ConfigError` for any other text, also for a time without a zone.
    """
    text = text.strip()
    if text == _NOW:
        return Moment()
    if text[:1] in {"+", "-"}:
        length = duration.parse(text[1:])
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
