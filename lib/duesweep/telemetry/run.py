"""What is told of one run of `sweep`."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from duesweep.core.account import SweepReport
from duesweep.core.errors import DuesweepError
from duesweep.stores.base import Store

# So many due messages are counted: quick, and more than enough to see that a backlog grows.
MOST_COUNTED = 100_000
# Before any Due that an endpoint would store.
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Due:
    """What is due after a run. `messages` are those that the next sweep would take, counted up to
    `MOST_COUNTED`. `oldest_seconds`: for how long the oldest stored message has been due, whatever
    holds it back; 0: none is due; None: the store cannot tell.
    """

    messages: int
    oldest_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A run that has ended. `report`: None if there was nothing to do, or if an error ended it.
    `due`: None if it is not known. `recent`: where runs follow each other closely, the reports of
    the last ones, whose worst lateness is told instead of the last one's.
    """

    source: str
    at: datetime
    seconds: float
    exit_code: int
    report: SweepReport | None = None
    due: Due | None = None
    recent: tuple[SweepReport, ...] = ()


def look_at_due(store: Store) -> Due | None:
    """What is due now; None if the store does not answer."""
    try:
        with store.open_driver() as session:
            horizon = session.horizon()
            messages = session.count_pending(horizon, most=MOST_COUNTED)
            oldest = session.next_due(replace(horizon, before=_BEGINNING))
    except DuesweepError:
        return None
    if oldest is None:
        return Due(messages, 0.0)
    return Due(messages, max(0.0, (horizon.server_time - oldest).total_seconds()))
