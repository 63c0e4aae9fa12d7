"""A sweep over Spark Connect, in a process of its own. Usage: connect_process.py <config file>"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from duesweep import config as configuration
from duesweep import wiring
from duesweep.engines.spark import SparkEngine
from duesweep.report.summary import as_json
from duesweep.sweep import exit_code, sweep


def main(file: str) -> int:
    jars = ",".join(str(jar) for jar in configuration.jars())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.jars", jars)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .getOrCreate()
    )
    summary = sweep(SparkEngine(spark), wiring.sweep_context(configuration.load(Path(file))))
    print(json.dumps(as_json(summary)))
    return exit_code(summary)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
