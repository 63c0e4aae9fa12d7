"""The Spark session that a sweep runs in."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from duesweep import jvm_stderr

_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # Others read no INT96 before 1677 and after 2262. The ledger's writer says it again.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A second copy of a running task would claim beside the first: harmless, and never useful.
    "spark.speculation": "false",
    # Arrow rows stay Arrow until an executor writes them; as a local relation they would become
    # part of the query's plan, which took 12 s for 200,000 of them, against 2 s.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
}
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.driver.memory": "2g",
    # As conf/spark-defaults.conf has it, which says why.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def spark_session(jars: Sequence[Path] = (), master: str = "local[*,4]") -> SparkSession:
    """The session that spark-submit or Databricks prepared, else one with `jars` on `master`.

    With retries: a task whose JDBC read is cut is run again, and the other slices go on.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    builder = SparkSession.builder.appName("duesweep")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    if jars:
        # Workers of a local session run on this interpreter, whatever `python3` is on the PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        for name, value in _LOCAL_SETTINGS.items():
            builder = builder.config(name, value)
        builder = builder.master(master)
        builder = builder.config("spark.jars", ",".join(str(jar) for jar in jars))
    # It tells of a JVM that is gone, stack and all; whoever called it says so in a sentence.
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_py4js)
    with jvm_stderr.filtered():
        session = builder.getOrCreate()
    # PySpark's own handler of SIGINT calls the JVM in the middle of whatever call is under way.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return session


def _is_not_py4js(record: logging.LogRecord) -> bool:
    """Of a call that Ctrl-C interrupts, py4j tells the root logger."""
    return record.module != "java_gateway"
