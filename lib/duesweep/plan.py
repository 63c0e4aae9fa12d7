"""What is due, as slices: claim keys over JDBC, partitioned by Due, one partition a slice.

A plan is a hint. Its partitions are not one snapshot, so the claim tests everything again.
"""

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from duesweep.core.policy import BatchLimits, slice_count
from duesweep.stores.base import DriverSession
from duesweep.stores.journal import JdbcSource
from duesweep.stores.values import Slices, SweepRun

# Of 45 kB each.
_FETCH_ROWS = 50


def plan_slices(session: DriverSession, run: SweepRun, cores: int, limits: BatchLimits) -> Slices:
    """Slices of equal size over what is eligible now."""
    found = session.count_pending(run.horizon)
    return session.plan(run, slice_count(found, cores, limits))


def claim_keys_df(spark: SparkSession, source: JdbcSource, plan: Slices) -> DataFrame:
    """`claim_keys` and `sizes` of what is eligible, oldest first, a thousand to a row (strings,
    separated by commas), and the `total` of their slice; partition i is slice i, with no shuffle
    between read and dispatch.
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
        # Spark Connect has no context to ask; a range has as many partitions.
        partitions_df = spark.range(1_000).select(F.spark_partition_id().alias("partition"))
        return partitions_df.distinct().count()
