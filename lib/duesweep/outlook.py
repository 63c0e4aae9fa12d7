"""What a sweep would do now, without doing it: how many messages it would take, and what holds
others back.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median
from typing import NamedTuple

from duesweep.core.account import HeldBack, Holder, held_by_pause
from duesweep.core.change import DueSpan, WaitingMessage
from duesweep.core.errors import MessageError
from duesweep.core.policy import Pause, Paused
from duesweep.core.routing import fits_destination
from duesweep.ledger.ledger import Ledger
from duesweep.stores.base import OperatorDriver
from duesweep.sweep.job import SweepContext

# So many messages are looked at, those that have been due for the longest: about two seconds.
MOST_LOOKED_AT = 50_000
# How late messages are, by the end of each step; the last one has none.
LATENESS = ("up_to_1_min", "up_to_1_h", "up_to_1_d", "more")
_STEPS = (timedelta(minutes=1), timedelta(hours=1), timedelta(days=1))
_LAST_SWEEPS = 10
_LEAST_MESSAGES = 100


class DestinationOutlook(NamedTuple):
    """Messages that are due for a destination; None: it cannot be read. `late` has how many there
    are in each step of `LATENESS`, `eligible` how many a sweep would take. `problem`: why they
    would fail, for example because there is no queue; None: none is known.
    """

    destination: str | None
    eligible: int
    late: tuple[int, ...]
    back_off: int = 0
    paused: int = 0
    limited: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """`looked_at` of the messages that are due were looked at, those that have been due for the
    longest; `due` are all. `eligible` are those that a sweep would take, as far as the store can
    tell by itself. `slices` 0: one for each core. `seconds`: how long the sweep would take, by the
    rate of the last ones; None: there was none. `sql`: how a plan reads the claim keys.
    """

    source: str
    now: datetime
    destinations: Sequence[DestinationOutlook]
    looked_at: int
    due: int
    eligible: int
    engine: str
    slices: int
    held: Sequence[HeldBack] = ()
    seconds: float | None = None
    sql: str | None = None

    @property
    def is_cut(self) -> bool:
        """Whether there are more messages than were looked at."""
        return self.looked_at < self.due


@dataclass(slots=True)
class _Counts:
    late: Counter[int] = field(default_factory=Counter)
    eligible: int = 0
    back_off: int = 0
    paused: int = 0
    limited: int = 0


class DueMessages:
    """Counts messages that are due by their destinations, as far as it may look."""

    def __init__(self, context: SweepContext, now: datetime, pauses: Sequence[Pause]) -> None:
        self.looked_at = 0
        self._context = context
        self._now = now
        self._paused = Paused([pause.pattern for pause in pauses], context.own_name)
        self._counts: dict[str | None, _Counts] = {}

    def look(self, session: OperatorDriver) -> Sequence[DestinationOutlook]:
        """The destinations of what is due, those with the most messages first."""
        with session.look(DueSpan(end=self._now)) as pages:
            for page in pages:
                for waiting in page[: MOST_LOOKED_AT - self.looked_at]:
                    self._add(waiting)
                self.looked_at = min(MOST_LOOKED_AT, self.looked_at + len(page))
                if self.looked_at == MOST_LOOKED_AT:
                    break
        found = (
            DestinationOutlook(
                destination,
                each.eligible,
                tuple(each.late[step] for step in range(len(LATENESS))),
                each.back_off,
                each.paused,
                each.limited,
            )
            for destination, each in self._counts.items()
        )
        return sorted(found, key=lambda one: (-sum(one.late), one.destination or ""))

    def held(self, pauses: Sequence[Pause]) -> Iterator[HeldBack]:
        """What holds messages back, as far as they were looked at."""
        counts = self._counts.values()
        for pause in pauses:
            held = [n for name, n in self._counts.items() if fits_destination(name, pause.pattern)]
            yield held_by_pause(pause, sum(each.paused for each in held))
        if waiting := sum(each.back_off for each in counts):
            why = "they have failed, and are tried again later; see `duesweep list --failing`"
            yield HeldBack(Holder.BACK_OFF, None, why, waiting)
        for limit in self._context.rate_limits.limits:
            names = [name for name in self._counts if self._context.rate_limits.of(name) == limit]
            if limited := sum(self._counts[name].limited for name in names):
                why = f"{limit.per_second:g} messages a second at most"
                yield HeldBack(Holder.LIMITED, limit.pattern, why, limited)

    def _add(self, waiting: WaitingMessage) -> None:
        message = waiting.message
        is_unknown = message.destination is None and isinstance(message.headers, MessageError)
        name = None if is_unknown else message.destination or self._context.own_name
        counts = self._counts.setdefault(name, _Counts())
        late = self._now - (waiting.due or self._now)
        counts.late[sum(late > step for step in _STEPS)] += 1
        if self._paused.separate([message])[0]:
            counts.paused += 1
        elif waiting.next_attempt_at is not None and waiting.next_attempt_at > self._now:
            counts.back_off += 1
        else:
            counts.eligible += 1
            counts.limited += self._context.rate_limits.of(name) is not None


def estimate_seconds(ledger: Ledger, source: str, messages: int, engine: str) -> float | None:
    """How long a sweep of so many messages would take, by the rates of the last ones on the same
    engine; None if there was none that is worth a comparison.
    """
    columns = ("source", "engine", "outcome", "start", "dispatched", "rows_per_second")
    rows = [
        row
        for row in ledger.rows("sweeps", columns)
        if row["source"] == source
        and row["engine"] == engine
        and row["dispatched"] >= _LEAST_MESSAGES
        and row["rows_per_second"]
    ]
    last = sorted(rows, key=lambda row: row["start"])[-_LAST_SWEEPS:]
    return messages / median(row["rows_per_second"] for row in last) if last else None
