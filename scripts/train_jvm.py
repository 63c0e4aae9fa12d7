"""Use Spark once as a sweep does, so that the JVM archives the classes that this loads."""

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from delta.tables import DeltaTable
from pyspark import SparkContext
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention


def sample_df(spark: SparkSession) -> DataFrame:
    """Types and functions such as the ledger's tables have."""
    return spark.range(100).select(
        F.col("id").cast("string").alias("key"),
        F.to_timestamp(F.lit("2024-01-01T00:00:00Z")).alias("due"),
        F.create_map(F.lit("a"), F.lit("b")).alias("headers"),
        F.encode(F.lit("body"), "utf-8").alias("body"),
    )


def append(df: DataFrame, table: Path) -> None:
    """An append such as settling makes."""
    writer = df.write.format("delta").mode("append")
    writer.option("txnAppId", "training").option("txnVersion", 1).save(str(table))


def consume(rows: Iterable[Row]) -> None:
    """A Python task."""
    for _ in rows:
        pass


def stop_and_wait(spark: SparkSession) -> None:
    """The JVM writes its archive at its end, for which PySpark itself does not wait."""
    jvm = SparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001 - nothing else knows
    spark.stop()
    jvm.stdin.close()
    jvm.wait()


def main() -> int:
    """Append, run Python tasks, delete, aggregate."""
    spark = SparkSession.builder.getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table"
        df = sample_df(spark)
        append(df, table)
        append(df, table)
        df.repartition(2).foreachPartition(consume)
        ledger = DeltaTable.forPath(spark, str(table))
        ledger.delete("key = '7'")
        ledger.toDF().groupBy("due").agg(F.count("*"), F.max("key")).orderBy("due").collect()
    stop_and_wait(spark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
