"""Facts from the environment that are no settings: Spark, OpenTelemetry, and when this process was
started.
"""

import os
import re
import sys
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal

from duesweep.core import submit
from duesweep.core.submit import SubmitOptions
from duesweep.drivers.dsn import DsnError
from duesweep.drivers.urls import check_http

# One of these is set if spark-submit or a shell of PySpark prepares the session.
_PREPARED_VARIABLES = {"PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"}
_DATABRICKS = "DATABRICKS_RUNTIME_VERSION"
# If one of these is set, a path may be on another file system for Spark than for this process.
_CLUSTER_VARIABLES = {_DATABRICKS, "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_REMOTE"}
# When this process began, in seconds since 1970-01-01 UTC.
STARTED = time.time()
_OTLP = "OTEL_EXPORTER_OTLP"
_PROTOCOL = "http/protobuf"
# As OpenTelemetry's specification has them.
_HEADER = re.compile(r"\s*[!#$%&'*+.^_`|~0-9A-Za-z-]+\s*=[\t\x20-\x2b\x2d-\x7e\x80-\xff]*")

Signal = Literal["traces", "metrics"]


def has_prepared_session() -> bool:
    """Whether Spark is there already: on Databricks, in a notebook, or by spark-submit."""
    if not _PREPARED_VARIABLES.isdisjoint(os.environ) or _DATABRICKS in os.environ:
        return True
    # If PySpark is not loaded, no session is active.
    spark = sys.modules.get("pyspark.sql")
    return spark is not None and spark.SparkSession.getActiveSession() is not None


def has_pyspark() -> bool:
    """Whether PySpark is installed, or on the path as spark-submit puts it there."""
    return "pyspark" in sys.modules or find_spec("pyspark") is not None


def has_spark_of_its_own() -> bool:
    """Whether Spark, or its settings, are given."""
    return bool(submit.command_line.given) or "MASTER" in os.environ


def would_start_spark() -> bool:
    """Whether Spark would have to start first, on this machine's own cores: no session is prepared,
    and neither a cluster nor a server of Spark Connect is named.
    """
    options = submit.command_line
    master = options.master or os.environ.get("MASTER", "local")
    is_local = master.startswith("local") and not master.startswith("local-cluster")
    is_remote = options.remote is not None or "SPARK_REMOTE" in os.environ
    return is_local and not is_remote and not has_prepared_session()


def has_cluster_files() -> bool:
    """Whether Spark may take a path for one on a cluster's file system, or reach it with
    credentials that this process has not got.
    """
    may_reach = submit.command_line.may_reach_other_files
    return may_reach or not _CLUSTER_VARIABLES.isdisjoint(os.environ)


def spark_start() -> SubmitOptions | None:
    """The options with which this process starts Spark. None: spark-submit or Databricks prepares
    the session, with jars of its own.
    """
    is_prepared = not _PREPARED_VARIABLES.isdisjoint(os.environ) or _DATABRICKS in os.environ
    return None if is_prepared else submit.command_line


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """The target of a signal. `problem`: why it cannot go there; None: it can."""

    endpoint: str = field(repr=False)
    headers: str = field(default="", repr=False)
    problem: str | None = None


def otlp_settings(signal: Signal) -> OtlpSettings | None:
    """The target of a signal, or None."""
    own = f"_{signal.upper()}"
    given = {
        name.removeprefix(_OTLP): value
        for name, value in os.environ.items()
        if name.startswith(_OTLP) and value
    }
    endpoint, common = given.get(f"{own}_ENDPOINT", ""), given.get("_ENDPOINT", "")
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if is_off or os.environ.get(f"OTEL{own}_EXPORTER") == "none" or not (endpoint or common):
        return None
    protocol = given.get(f"{own}_PROTOCOL") or given.get("_PROTOCOL") or _PROTOCOL
    problem = f"{_OTLP}_PROTOCOL is {protocol}, not {_PROTOCOL}" if protocol != _PROTOCOL else None
    try:
        check_http(endpoint or common)
    except DsnError as error:
        problem = f"{_OTLP}{own if endpoint else ''}_ENDPOINT is wrong: {error}"
    headers = given.get(f"{own}_HEADERS") or given.get("_HEADERS", "")
    if not all(map(_HEADER.fullmatch, filter(str.strip, headers.split(",")))):
        # OpenTelemetry would log it, and it may be a token.
        problem = f"{_OTLP}_HEADERS is not of the form name=value,name=value"
    return OtlpSettings(endpoint or f"{common.rstrip('/')}/v1/{signal}", headers, problem)
