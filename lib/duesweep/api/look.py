"""Asks the store whether there is work, before Spark starts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from duesweep import config as configuration
from duesweep.core.errors import Problem, StoreError
from duesweep.core.policy import LedgerWriter, Pause
from duesweep.ledger.ledger import resolve_writer
from duesweep.stores.base import DriverSession, Horizon
from duesweep.sweep.job import SweepContext
from duesweep.sweep.queues_check import refuse_missing_queues
from duesweep.sweep.stop import Stop

NeedsSpark = Callable[[SweepContext, Callable[[], int]], bool]


class NextDue(NamedTuple):
    """When the next message comes due, and what time it is, both by the server's clock."""

    instant: datetime
    now: datetime


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at the store found. `has_work`: any message is eligible, or any sweep unsettled;
    `needs_spark`: so much that Spark has to do it. `notices` are the store's. `next_due`: the next
    message, if there is no work, and if the store can tell. `pauses` are those in force. `since`:
    what was stored with an earlier Due is held back; None: not known.
    """

    has_work: bool
    needs_spark: bool
    notices: Sequence[Problem]
    next_due: NextDue | None = None
    pauses: Sequence[Pause] = ()
    since: datetime | None = None

    def reach(self, context: SweepContext) -> Callable[[Horizon], Horizon]:
        """The reach of a sweep right after this look."""
        return lambda horizon: replace(context.reach(horizon), since=self.since)


def look_at(
    context: SweepContext, stop: Stop | None = None, for_spark: NeedsSpark | None = None
) -> Look:
    """Look whether there is work, and how much of it a sweep would do. `for_spark` says whether it
    is Spark's, by default `needs_spark`. Raises `ConfigError` for wrong settings.
    """
    with context.store.open_driver() as session:
        check(session, context)
        return look(session, context, stop, for_spark)


def check(session: DriverSession, context: SweepContext) -> None:
    """Raise `ConfigError` unless store and queues are as a sweep needs them."""
    session.check()
    context.queue.check(context.error_queue)


def look(
    session: DriverSession,
    context: SweepContext,
    stop: Stop | None = None,
    for_spark: NeedsSpark | None = None,
) -> Look:
    """As `look_at`, with a session that has been checked."""
    ahead = timedelta(seconds=context.look_ahead.longest_seconds)
    if not session.has_work(ahead):
        return Look(
            has_work=False,
            needs_spark=False,
            notices=session.notices(),
            next_due=_find_next_due(session),
            pauses=session.pauses(),
        )
    horizon = session.horizon().looking_ahead(ahead)
    horizon = session.skip_held(horizon)
    refuse_missing_queues(context, session, horizon)
    on_spark = (for_spark or needs_spark)(
        context, lambda: _count(context, session, horizon, stop or Stop())
    )
    notices = [*session.notices(), *session.table_notices(), *context.queue.notices()]
    pauses, since = session.pauses(), horizon.since
    return Look(True, on_spark, notices, pauses=pauses, since=since)  # noqa: FBT003 - two answers


def _find_next_due(session: DriverSession) -> NextDue | None:
    try:
        horizon = session.horizon()
        instant = session.next_due(horizon)
    except StoreError:
        # Nothing is due, whether or not the store still answers.
        return None
    return None if instant is None else NextDue(instant, horizon.server_time)


def needs_spark(context: SweepContext, count: Callable[[], int]) -> bool:
    """Whether Spark is there already, or the work is Spark's; only then is it counted."""
    return configuration.has_prepared_session() or is_for_spark(context, count)


def is_for_spark(context: SweepContext, count: Callable[[], int]) -> bool:
    """Whether so much is due that Spark is faster, or there is no sweep without it."""
    return always_needs_spark(context) or count() >= context.spark_from


def always_needs_spark(context: SweepContext) -> bool:
    """Whether there is no sweep without Spark: it has to write the ledger, or the settings say
    so.
    """
    writer = resolve_writer(context.ledger_writer, context.ledger_root)
    return writer is LedgerWriter.SPARK or not context.spark_from


def _count(context: SweepContext, session: DriverSession, horizon: Horizon, stop: Stop) -> int:
    return stop.most_of(session.count_pending(horizon, most=context.spark_from))
