"""What is due, as slices: the keys over JDBC, partitioned by Due, one partition a slice.

A plan is a hint. Its partitions are not one snapshot, so the claim tests everything again.
"""

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from duesweep.policy import BatchLimits, slice_count
from duesweep.stores.base import DriverSession
from duesweep.stores.values import Slices, SweepRun

_FETCH_ROWS = 10_000


def plan_slices(session: DriverSession, run: SweepRun, cores: int, limits: BatchLimits) -> Slices:
    """Slices of equal size over what is due and ripe now."""
    found = session.count_pending(run.horizon)
    return session.plan(run, slice_count(found, cores, limits))


def keys_df(spark: SparkSession, session: DriverSession, run: SweepRun, plan: Slices) -> DataFrame:
    """`message_key` (string) and `bytes` (bigint) of what is due and ripe, oldest first within a
    slice; partition i is slice i.
    """
    source = session.jdbc()
    due_df = spark.read.jdbc(
        source.url,
        f"({session.keys_query(run.horizon)}) AS due_messages",
        predicates=list(plan.predicates),
        properties=source.properties | {"fetchsize": str(_FETCH_ROWS)},
    )
    # Sorted within the partition: no shuffle between read and dispatch.
    return (
        due_df.select("message_key", "due_us", "bytes")
        .sortWithinPartitions("due_us")
        .select("message_key", "bytes")
    )


def core_count(spark: SparkSession) -> int:
    """How many tasks run at once."""
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkException:
        # Spark Connect has no context to ask; a range has as many partitions.
        partitions_df = spark.range(1_000).select(F.spark_partition_id().alias("partition"))
        return partitions_df.distinct().count()
