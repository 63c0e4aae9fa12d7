"""Cuts what is due into slices: claim keys, read over JDBC, one partition for each slice.

A plan is a hint. Its partitions are not one snapshot, so the claim tests everything again.
"""

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from duesweep.core.policy import BatchLimits, slice_count
from duesweep.stores.base import DriverSession
from duesweep.stores.journal import JdbcSource
from duesweep.stores.values import Slices, SweepRun

# Each row is about 45 kB.
_FETCH_ROWS = 50


def plan_slices(session: DriverSession, run: SweepRun, cores: int, limits: BatchLimits) -> Slices:
    """Slices of equal size over what is eligible now."""
    found = session.count_pending(run.horizon)
    return session.plan(run, slice_count(found, cores, limits))


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


def core_count(spark: SparkSession) -> int:
    """How many tasks run at once."""
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkException:
        # Spark Connect has no context. A range gets one partition for each core.
        partitions_df = spark.range(1_000).select(F.spark_partition_id().alias("partition"))
        return partitions_df.distinct().count()
