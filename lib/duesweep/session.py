"""The Spark session that a sweep runs in."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from duesweep import config as configuration
from duesweep import jvm_stderr

_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # Other readers cannot read INT96 before 1677 and after 2262. The ledger's writer sets this too.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A second copy of a running task is safe, but useless: it would find the rows locked.
    "spark.speculation": "false",
    # Arrow rows stay Arrow until an executor writes them. As a local relation they would become
    # part of the query's plan: 200,000 rows took 12 s instead of 2 s.
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
    # The same as in conf/spark-defaults.conf, which gives the reason.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def spark_session(jars: Sequence[Path] = (), master: str = "local[*,4]") -> SparkSession:
    """The session that spark-submit or Databricks prepared, else a new one with `jars` on `master`.

    Failed tasks are retried: a task whose JDBC read is cut runs again, and the other slices go on.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    settings = {"spark.app.name": "duesweep", **_SETTINGS}
    if jars:
        # Workers of a local session run on this interpreter, whatever `python3` is on the PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings |= _LOCAL_SETTINGS | {"spark.master": master}
        settings["spark.jars"] = ",".join(str(jar) for jar in jars)
    # py4j logs a lost JVM with a whole stack trace. The caller reports it in one sentence.
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_from_py4j)
    handler = signal.getsignal(signal.SIGINT)
    with jvm_stderr.filter_stderr():
        if not configuration.has_remote_spark():
            _start_jvm(settings)
        session = SparkSession.builder.config(map=dict(settings)).getOrCreate()
    # PySpark's own handler of SIGINT calls the JVM while another call to the JVM may be running.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)
    return session


def _start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM that a session with these settings runs in, in a process group of its own.

    Who stops a command may send the signal to its whole group. This process then stops the sweep
    well, for which it needs the JVM.
    """
    # PySpark has no other way to ask whether there is a JVM already.
    if SparkContext._gateway is None:  # noqa: SLF001
        conf = SparkConf().setAll(list(settings.items()))
        gateway = launch_gateway(conf, {"process_group": 0})  # type: ignore[no-untyped-call]
        SparkContext(conf=conf, gateway=gateway)


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    """Drops py4j's records: py4j logs every call that Ctrl-C interrupts to the root logger."""
    return record.module != "java_gateway"
