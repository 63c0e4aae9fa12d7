"""Sweeps all endpoints of a fleet: first a look at each, then a sweep where there is work.

What is little is swept in this process, while Spark sweeps what is much. Each of those is a Spark
job of its own, and they run at once in one session: so no core waits for the end of one while
another has slices left, and each keeps its own plan, account and end.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from duesweep.api.engines import opened_engine
from duesweep.api.look import Look, is_for_spark, look_at
from duesweep.core.account import SweepReport
from duesweep.core.errors import DuesweepError
from duesweep.fleet.members import Failure, Job, Member, side_by_side
from duesweep.objective import misses_objective
from duesweep.sweep.stop import Stop
from duesweep.sweep.sweep import sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Enough that the cores always have a slice to work on, and that a driver's memory holds the plans.
_ON_SPARK_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Looked:
    """An endpoint, and what a look at its store found."""

    member: Member
    look: Look

    @property
    def is_for_spark(self) -> bool:
        """Whether its sweep runs on Spark."""
        return self.look.has_work and self.look.needs_spark


@dataclass(frozen=True, slots=True)
class Swept:
    """An endpoint after its turn. `report`: None where there was nothing to do, or where a stop was
    wanted before its sweep began. `is_late`: it missed its objective.
    """

    member: Member
    look: Look
    report: SweepReport | None = None
    is_late: bool = False


def look_at_all(members: Sequence[Member], stop: Stop) -> list[Looked | Failure]:
    """Look at each store."""
    return side_by_side([Job(each, partial(_look, each, stop)) for each in members])


def sweep_all(looked: Sequence[Looked], stop: Stop) -> list[Swept | Failure]:
    """Sweep where there is work."""
    on_spark = [each for each in looked if each.is_for_spark]
    others = [each for each in looked if not each.is_for_spark]
    with ThreadPoolExecutor(1, thread_name_prefix="duesweep fleet on Spark") as pool:
        spark = pool.submit(_sweep_on_spark, on_spark, stop)
        done = side_by_side([Job(one.member, partial(_sweep, one, stop, None)) for one in others])
        return [*done, *spark.result()]


def _look(member: Member, stop: Stop) -> Looked:
    return Looked(member, look_at(member.context, stop.part(), is_for_spark))


def _sweep_on_spark(looked: Sequence[Looked], stop: Stop) -> list[Swept | Failure]:
    if not looked or stop.is_wanted:
        return [Swept(each.member, each.look) for each in looked]
    try:
        # The long ones first: the short ones fill the cores at the end.
        ordered = sorted(looked, key=_due, reverse=True)
        with opened_engine(ordered[0].member.context, on_spark=True) as engine:
            work = partial(_turn, stop=stop, spark=engine.spark)
            with ThreadPoolExecutor(_ON_SPARK_AT_ONCE, "duesweep fleet job") as pool:
                return list(pool.map(work, ordered))
    except DuesweepError as error:
        return [Failure(each.member.source, error) for each in looked]


def _due(looked: Looked) -> int:
    context = looked.member.context
    try:
        with context.store.open_driver() as session:
            return session.count_pending(looked.look.reach(context)(session.horizon()))
    except DuesweepError:
        # Its own sweep tells.
        return 0


def _turn(looked: Looked, stop: Stop, spark: "SparkSession | None") -> Swept | Failure:
    try:
        return _sweep(looked, stop, spark)
    except DuesweepError as error:
        return Failure(looked.member.source, error)


def _sweep(looked: Looked, stop: Stop, spark: "SparkSession | None") -> Swept:
    member, look = looked.member, looked.look
    if not look.has_work or stop.is_wanted:
        return Swept(member, look)
    context = member.context
    with opened_engine(context, on_spark=spark is not None, spark=spark) as engine:
        report = sweep(engine, context, reach=look.reach(context), stop=stop.part())
        return Swept(member, look, report, misses_objective(context, report))
