"""What is told of circuit breakers that opened: of a slice in the journal, of a sweep in its
summary.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import groupby

from duesweep.core.breaker import BreakerState, CircuitBreaker

# What the breaker of a slice's sessions is called.
SERVICES = "store and queues"
# A slice may have thousands of destinations; those with the most messages are told.
MOST_REPORTED = 20


@dataclass(frozen=True, slots=True)
class BreakerReport:
    """A breaker that opened. `name` is a destination's address, or what the service is called;
    `state` is that at the end: `closed`, `open` or `triggered`. `since` is when it opened the last
    time, in ISO 8601; `seconds` is for how long it was open. `left` messages of the destination
    were left because of it.
    """

    name: str
    state: str
    since: str
    seconds: float
    left: int
    reason: str

    @property
    def is_closed(self) -> bool:
        """Whether it was in use again."""
        return self.state == BreakerState.CLOSED


def report_of(name: str, breaker: CircuitBreaker, left: int, now: datetime) -> BreakerReport:
    """The report of a breaker that opened. `now` is this machine's time."""
    opened = now - timedelta(seconds=breaker.opened_seconds_ago)
    return BreakerReport(
        name,
        breaker.state.value,
        opened.isoformat(timespec="seconds"),
        round(breaker.open_seconds, 1),
        left,
        breaker.reason,
    )


def report_as_text(reports: Iterable[BreakerReport]) -> str | None:
    """Reports as the journal keeps them; None if there are none."""
    found = [asdict(report) for report in _most_important(reports)]
    return json.dumps(found) if found else None


def report_from_text(text: str | None) -> Sequence[BreakerReport]:
    """The reports that `report_as_text` wrote."""
    return [BreakerReport(**values) for values in json.loads(text or "[]")]


def merge_reports(reports: Iterable[BreakerReport]) -> tuple[BreakerReport, ...]:
    """One report of each breaker from those of several slices, those with the most messages first.
    It is closed if it is in all of them.
    """
    ordered = sorted(reports, key=lambda report: (report.name, report.is_closed, report.since))
    merged = [_merge(list(same)) for _, same in groupby(ordered, key=lambda report: report.name)]
    return tuple(_most_important(merged))


def _merge(same: Sequence[BreakerReport]) -> BreakerReport:
    first = same[0]
    return BreakerReport(
        first.name,
        first.state,
        min(report.since for report in same),
        max(report.seconds for report in same),
        sum(report.left for report in same),
        first.reason,
    )


def _most_important(reports: Iterable[BreakerReport]) -> Sequence[BreakerReport]:
    ordered = sorted(reports, key=lambda report: (report.is_closed, -report.left, report.name))
    return ordered[:MOST_REPORTED]
