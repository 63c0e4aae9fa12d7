"""Puts figures into the steps of a plot. Without I/O."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from duesweep.page.facts import Step, SweepLine

_MOST_BARS = 56
# The last milliseconds of each step of lateness; the last step has none.
_LATENESS_ENDS = (1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000)
_LATENESS = ("1 s", "10 s", "1 min", "10 min", "1 h", "1 d", "more")


def lateness_steps(milliseconds: Iterable[int | None]) -> Sequence[Step]:
    """How many messages were up to so late."""
    counts = Counter(bisect_left(_LATENESS_ENDS, ms) for ms in milliseconds if ms is not None)
    return [Step(label, counts[number]) for number, label in enumerate(_LATENESS)]


class TimeSteps:
    """The time from `since` to `now` in up to 56 steps of whole hours."""

    def __init__(self, since: datetime, now: datetime) -> None:
        hours = max(1, -(-int((now - since).total_seconds()) // 3_600))
        self._each = timedelta(hours=-(-hours // _MOST_BARS))
        self._count = -(-timedelta(hours=hours) // self._each)
        # Steps end now, so that the last one is whole.
        self._start = now - self._count * self._each

    def rate(self, sweeps: Iterable[SweepLine]) -> Sequence[Step]:
        """How many messages were dispatched in each step, by when their sweep began."""
        return self._steps(sweeps, lambda sweep, before: before + sweep.dispatched)

    def backlog(self, sweeps: Iterable[SweepLine]) -> Sequence[Step]:
        """The most messages that a sweep of each step found due."""
        return self._steps(sweeps, lambda sweep, before: max(before, sweep.found))

    def _steps(
        self, sweeps: Iterable[SweepLine], take: Callable[[SweepLine, int], int]
    ) -> Sequence[Step]:
        counts = [0] * self._count
        for sweep in sweeps:
            number = (sweep.start - self._start) // self._each
            if 0 <= number < self._count:
                counts[number] = take(sweep, counts[number])
        return [
            Step(f"{self._start + number * self._each:%d %b %H:%M}", count)
            for number, count in enumerate(counts)
        ]
