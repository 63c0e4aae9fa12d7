"""How soon messages come due, in a few steps that people think in."""

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime, timedelta

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
