"""What a sweep would do now: asks the store and the ledger, and changes nothing."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from duesweep.api.ledgers import command_ledger
from duesweep.api.look import needs_spark
from duesweep.core.errors import ConfigError, LedgerError
from duesweep.ledger.base import local_folder
from duesweep.operations.messages import open_look
from duesweep.outlook import DestinationOutlook, DueMessages, Outlook, estimate_seconds
from duesweep.sweep.job import SweepContext
from duesweep.sweep.queues_check import find_missing_queues
from duesweep.sweep.sweep import InProcessEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# So many destinations, those with the most messages, are compared with the queues.
_MOST_ASKED = 100
# Called with the destinations, before all messages are counted, which may take its time.
Show = Callable[[Sequence[DestinationOutlook]], None]


def look_ahead(
    context: SweepContext, show: Show | None = None, spark: "SparkSession | None" = None
) -> Outlook:
    """What a sweep would do now. Raises `ConfigError` if the store cannot show messages."""
    with open_look(context.store) as session:
        horizon = session.horizon()
        now, pauses = horizon.server_time, session.pauses()
        messages = DueMessages(context, now, pauses)
        destinations = messages.look(session)
        if show is not None:
            show(destinations)
        destinations = _with_problems(context, destinations)
        due, *_ = session.count_waiting([now])
        # A plan cannot tell of all messages whether they are paused; who has read them can.
        eligible = (
            sum(one.eligible for one in destinations)
            if messages.looked_at >= due
            else session.count_pending(horizon)
        )
        on_spark = spark is not None or needs_spark(context, lambda: eligible)
        sql = session.plan_sql(context.reach(horizon))
    engine = "spark" if on_spark else "in-process"
    return Outlook(
        source=context.store.source,
        now=now,
        destinations=destinations,
        looked_at=messages.looked_at,
        due=due,
        eligible=eligible,
        engine=engine,
        slices=context.slices if on_spark else _slices_in_process(context, eligible),
        held=tuple(messages.held(pauses)),
        seconds=_estimate(context, eligible, engine, spark),
        sql=sql,
    )


def _slices_in_process(context: SweepContext, eligible: int) -> int:
    return InProcessEngine().slicing(context.slices, context.limits.rows).count(eligible)


def _with_problems(
    context: SweepContext, destinations: Sequence[DestinationOutlook]
) -> Sequence[DestinationOutlook]:
    names = [one.destination for one in destinations[:_MOST_ASKED] if one.destination is not None]
    missing = find_missing_queues(context, names)
    return [one._replace(problem=missing.get(one.destination or "")) for one in destinations]


def _estimate(
    context: SweepContext, eligible: int, engine: str, spark: "SparkSession | None"
) -> float | None:
    """By the ledger, where it can be read without starting Spark."""
    if spark is None and local_folder(context.ledger_root) is None:
        return None
    try:
        with command_ledger(context, spark) as ledger:
            return estimate_seconds(ledger, context.store.source, eligible, engine)
    except (ConfigError, LedgerError):
        # A plan is of use without it, and the sweep says what is wrong.
        return None
