"""What the environment says of Spark: a session that is there, or the jars for one."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from duesweep.core.errors import ConfigError

_JARS_VARIABLE = "DUESWEEP_JARS"
# One of these is set if the session is prepared by spark-submit or spark-submit.sh.
_PREPARED_VARIABLES = {"PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"}
_COMMAND_VARIABLE = "DUESWEEP_SPARK_COMMAND"
_DATABRICKS = "DATABRICKS_RUNTIME_VERSION"
# Where one of these is set, a path may be on another file system for Spark than for this process.
_CLUSTER_VARIABLES = {
    *(_DATABRICKS, "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_REMOTE"),
    # Set by spark-submit.sh where options of Spark may say so.
    "DUESWEEP_SPARK_FILES",
}


def has_prepared_session() -> bool:
    """Whether Spark is there already: on Databricks, in a notebook, or by spark-submit."""
    if not _PREPARED_VARIABLES.isdisjoint(os.environ) or _DATABRICKS in os.environ:
        return True
    # Where PySpark is not loaded, no session is active.
    spark = sys.modules.get("pyspark.sql")
    return spark is not None and spark.SparkSession.getActiveSession() is not None


def spark_command() -> str | None:
    """The shell command that runs this sweep on Spark; None: spark-submit.sh has not set one."""
    return os.environ.get(_COMMAND_VARIABLE)


def has_cluster_files() -> bool:
    """Whether Spark may take a path for one on a cluster's file system, or reach it with
    credentials that this process has not got.
    """
    return not _CLUSTER_VARIABLES.isdisjoint(os.environ)


def jars() -> Sequence[Path]:
    """The jars for a Spark session, from the folder that spark-submit.sh filled.

    Empty if spark-submit has prepared a session, which has a master and jars of its own. Raises
    `ConfigError` for a folder without jars.
    """
    folder = os.environ.get(_JARS_VARIABLE)
    if folder is None or not _PREPARED_VARIABLES.isdisjoint(os.environ):
        return ()
    found = sorted(Path(folder).glob("*.jar"))
    if not found:
        raise ConfigError(
            f"{_JARS_VARIABLE} names the folder {folder}, which has no jars", advice="run tests/run"
        )
    return found
