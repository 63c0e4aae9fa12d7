"""duesweep from Python over Spark Connect, in a process of its own.

Usage: connect_process.py <config file>. Sweeps, cancels one message that waits, and prints its
results and the ledger's lazy DataFrames.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from duesweep import Duesweep, MessageFilter, load_config
from duesweep.drivers.jars import ready_jars
from duesweep.drivers.spark_start import spark_home_of_pyspark, spark_version
from duesweep.report.document import plain


def main(file: str) -> int:
    jars = ",".join(map(str, ready_jars(spark_version(spark_home_of_pyspark()))))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.jars", jars)
        # For this machine; the 200 of Spark's own default took most of the test's time.
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.sql.warehouse.dir", str(Path(file).parent / "warehouse"))
        .getOrCreate()
    )
    config = load_config(Path(file))
    if "/" not in config.ledger.root:
        # A schema of the session's catalog, made before.
        spark.sql(f"CREATE SCHEMA {config.ledger.root}").collect()
    duesweep = Duesweep(config, spark=spark)
    planned = duesweep.plan()
    report = duesweep.sweep().report
    assert report is not None
    [later] = duesweep.list(MessageFilter(destination="Later*")).messages
    cancelled = duesweep.cancel(MessageFilter(keys=(later.key,)))
    tombstones, changes = duesweep.table("tombstones"), duesweep.table("changes")
    told = {
        "swept": plain(report),
        "planned": [planned.engine, planned.eligible],
        "cancelled": cancelled.changed,
        "outcomes": sorted(map(list, tombstones.groupBy("outcome").count().collect())),
        "rows": [duesweep.table(name).count() for name in ("retries", "sweeps")],
        "changes": [row.change for row in changes.collect()],
        "module": type(tombstones).__module__,
    }
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
