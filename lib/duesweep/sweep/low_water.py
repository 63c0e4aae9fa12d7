"""The mark from which a watcher looks for work.

A look begins with the messages that have been due longest. So it passes over all that are held
back, and over delivered ones that an old snapshot still sees: PostgreSQL keeps their places in the
index, perhaps a million. If that takes long, most looks begin at the low-water mark instead: before
it, the last look found nothing to deliver. A message that is stored with an earlier Due, or whose
back-off is over, is found by a look at all, some seconds later.

    after                                 the mark                     looks at all messages
    a look that finds nothing             the horizon                  every few seconds, if they
                                                                       take long
    a look that finds work                its first Due                so too
    a round that left blocked messages    the horizon                  none until `tries_at`: then
                                                                       the sweep ends
    slices whose messages have limits     the horizon                  none until they have gone
    the begin of the next sweep           where these messages begin   again
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from duesweep.core.policy import Pause
from duesweep.core.world import Clock
from duesweep.stores.due import Due, Horizon, Work

# After a look at all messages that takes longer than one from the mark by this, the next one waits.
_LONG_SECONDS, _REST_PER_LOOK, _MOST_REST_SECONDS = 0.002, 20, 5.0


class LowWater:
    """The low-water mark of one source, as one process knows it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._mark: datetime | None = None
        self._pauses: Sequence[Pause] = ()
        # By whether looks find nothing, as these send more statements: how long the last two from
        # the mark took, and how much longer the last one at all took.
        self._usual_seconds: dict[bool, list[float]] = {True: [], False: []}
        self._longer_seconds = {True: 0.0, False: 0.0}
        # How long to rest after a look at all messages, and when the next one is.
        self._rest_seconds = self._next_at = 0.0
        # When the open sweep ends, to try messages that were left before the mark, and from which
        # Due on they are. Until then no look is at them. None: no message was left.
        self.tries_at: float | None = None
        # Whether messages before the mark wait for their limit, in slices of the open sweep.
        self._holds = False
        self._left_from: datetime | None = None

    def find_work(self, due: Due, horizon: Horizon) -> Work | None:
        """`Due.find_work`, from the mark on or, if it is time, from the beginning. A plan from its
        `since` on has no message before the mark.
        """
        pauses, began = due.pauses(), self._clock.seconds()
        is_time = began >= self._next_at or pauses != self._pauses
        may_look = self.tries_at is None and not self._holds
        looks_at_all = self._mark is None or (is_time and may_look)
        since = None if looks_at_all else self._mark
        work = due.find_work(replace(horizon, since=since))
        took = self._clock.seconds() - began
        is_idle = work is None or work.only_settles
        self._measure(took, is_idle=is_idle, looks_at_all=looks_at_all)
        if looks_at_all:
            self._next_at, self._pauses = began + took + self._rest_seconds, pauses
        if work is None or is_idle:
            self.clear(horizon)
            return work
        if since is not None:
            work = work._replace(since=max(since, work.since or since))
        # It may be before the mark, and the next look has to find it too.
        self._mark = work.since
        return work

    def _measure(self, took: float, *, is_idle: bool, looks_at_all: bool) -> None:
        usual = self._usual_seconds[is_idle]
        if not looks_at_all:
            self._usual_seconds[is_idle] = [*usual[-1:], took]
            return
        # Of two, always: a single one may have waited for something else.
        longer = max(0.0, took - min(usual or self._usual_seconds[not is_idle], default=0.0))
        both = min(longer, self._longer_seconds[is_idle])
        rest = _REST_PER_LOOK * both if both >= _LONG_SECONDS else 0.0
        self._rest_seconds = min(_MOST_REST_SECONDS, rest)
        self._longer_seconds[is_idle] = longer

    def begin(self) -> None:
        """Begin a look or a sweep, which is for messages that were left too."""
        if self.tries_at is not None or self._holds:
            self._mark, self.tries_at, self._holds = self._left_from, None, False

    @property
    def seconds_to_try(self) -> float:
        """After how many seconds to try messages that were left; 0 also without any."""
        return max(0.0, (self.tries_at or 0.0) - self._clock.seconds())

    def clear(self, horizon: Horizon, seconds_to_try: float | None = None) -> None:
        """Note that nothing before the horizon can be delivered now. `seconds_to_try`: messages
        were left, and are tried after this time, or earlier with messages that were left before.
        """
        self._mark = horizon.before
        if seconds_to_try is not None:
            self._note_left(horizon)
            tries_at = self._clock.seconds() + seconds_to_try
            self.tries_at = min(tries_at, self.tries_at or tries_at)

    def hold(self, horizon: Horizon) -> None:
        """Note that slices have messages before the horizon that wait for their limit: no look is
        at them, until `release`, or until the next sweep begins.
        """
        self._note_left(horizon)
        self._holds = True

    def release(self) -> None:
        """Note that the messages which waited have gone."""
        self._holds = False

    def _note_left(self, horizon: Horizon) -> None:
        if self.tries_at is None and not self._holds:
            self._left_from = horizon.since
