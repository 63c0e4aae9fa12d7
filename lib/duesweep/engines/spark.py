"""Slices as partitions of one Spark action: at scale, on executors."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from duesweep.claim_keys import read_claim_keys
from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Timeouts
from duesweep.dispatch import dispatch_slice
from duesweep.dispatch_job import DispatchJob
from duesweep.engines.watchdog import watch_dispatch
from duesweep.errors import raise_interruption
from duesweep.spark_errors import SPARK_ERRORS, sentence
from duesweep.stores.base import DriverSession
from duesweep.stores.journal import JdbcSource
from duesweep.stores.values import Slices

_log = structlog.get_logger(__name__)

# Each row is about 45 kB.
_FETCH_ROWS = 50


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Reads claim keys over JDBC; partition i is slice i. `timeouts` say when a dispatch without
    progress is ended. `progressed` is called when the journal has more batches than before.
    """

    spark: SparkSession
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    name: str = "spark"
    progressed: Callable[[], object] | None = None

    def slices(self, wanted: int) -> int:
        """As many as wanted, else one for each core."""
        return wanted or self.cores

    @property
    def cores(self) -> int:
        """How many tasks run at once."""
        try:
            return self.spark.sparkContext.defaultParallelism
        except PySparkException:
            # Spark Connect has no context. A range gets one partition for each core.
            partitions_df = self.spark.range(1_000).select(F.spark_partition_id().alias("part"))
            return partitions_df.distinct().count()

    def dispatch(self, session: DriverSession, plan: Slices, job: DispatchJob) -> str | None:
        """Dispatch all slices. Returns why Spark ended before all were done; None where all
        were.
        """
        # Nothing is journalled while all slices wait for what is blocked.
        patience = self.timeouts.plan_seconds(plan.found) + job.breaker.trigger_seconds
        with watch_dispatch(self.spark, job, patience, self.progressed) as watching:
            try:
                run_slices(claim_keys_df(self.spark, session.jdbc(), plan), job)
            except SPARK_ERRORS as error:
                raise_interruption(error)
                # The journal has what was done; slices without an end count as cut.
                reason = watching.reason or f"Spark ended the job: {sentence(error)}"
                _log.error("dispatch_cut_short", sweep_id=str(job.run.sweep_id), error=reason)
                return reason
        return None


def claim_keys_df(spark: SparkSession, source: JdbcSource, plan: Slices) -> DataFrame:
    """The claim keys of the plan, oldest first.

    Columns: `claim_keys` and `sizes` of up to a thousand messages, as text separated by commas, and
    `total`, the number of keys in the slice. Partition i is slice i, without a shuffle between read
    and dispatch.
    """
    due_df = spark.read.jdbc(
        source.url,
        f"({plan.claim_keys_query}) AS due_messages",
        predicates=[f"slice = {number}" for number in range(len(plan.planned))],
        properties=source.properties | {"fetchsize": str(_FETCH_ROWS)},
    )
    return due_df.select("claim_keys", "sizes", "total")


def run_slices(claim_keys_df: DataFrame, job: DispatchJob) -> None:
    """Dispatch every slice (partition) of `claim_keys_df` in one Spark action."""
    claim_keys_df.foreachPartition(_make_task(job))


def _make_task(job: DispatchJob) -> Callable[[Iterable[Row]], None]:
    def run(rows: Iterable[Row]) -> None:
        context = TaskContext.get()
        assert context is not None  # runs in a task only
        dispatch_slice(job, context.partitionId(), read_claim_keys(rows))

    return run
