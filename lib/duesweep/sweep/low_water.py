"""The mark from which a watcher looks for work.

A look begins with the messages that have been due longest. So it passes over all that are held
back, and over delivered ones that an old snapshot still sees: PostgreSQL keeps their places in the
index, perhaps a million. Most looks begin at the low-water mark instead: before it, the last look
found nothing to deliver. A message that is stored with an earlier Due, or whose back-off is over,
is found by a look at all, and these cost a hundredth of the time where they take longer.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from duesweep.core.policy import Pause
from duesweep.core.world import Clock
from duesweep.stores.due import Due, Horizon, Work

_REST_PER_LOOK, _MOST_REST_SECONDS = 100, 30.0


class LowWater:
    """The low-water mark of one source, as one process knows it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._mark: datetime | None = None
        self._pauses: Sequence[Pause] = ()
        # How long a look from the mark takes, and when to look at all again.
        self._usual_seconds = self._next_at = 0.0

    def find_work(self, due: Due, horizon: Horizon) -> Work | None:
        """`Due.find_work`, from the mark on or, if it is time, from the beginning."""
        pauses, began = due.pauses(), self._clock.seconds()
        looks_at_all = self._mark is None or pauses != self._pauses or began >= self._next_at
        work = due.find_work(replace(horizon, since=None if looks_at_all else self._mark))
        took = self._clock.seconds() - began
        if looks_at_all:
            longer = max(0.0, took - self._usual_seconds)
            self._next_at = began + took + min(_MOST_REST_SECONDS, _REST_PER_LOOK * longer)
            self._pauses = pauses
        else:
            self._usual_seconds = took
        if work is None or work.only_settles:
            self.clear(horizon)
        return work

    def clear(self, horizon: Horizon) -> None:
        """Note that nothing before the horizon can be delivered now."""
        self._mark = horizon.before
