"""The doctor's findings on a Spark session and its executors. DataFrame API only."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

import duesweep
from duesweep.config.adapters import Needs
from duesweep.core.errors import ConfigError, DuesweepError
from duesweep.core.finding import SESSION, Check, Finding, fault, fault_of, ok, skipped, warning
from duesweep.drivers.spark import SPARK_ERRORS, cause, refuse_settings
from duesweep.stores.base import Store
from duesweep.sweep.spark import SparkEngine, one_row_df

_TASKS_PER_CORE, _MOST_TASKS = 2, 1_000
# A task that ends at once frees its core for the next one, and other executors get none.
_TASK_SECONDS = 0.2
# local[4] tries once, local[4,3] three times.
_LOCAL_MASTER = re.compile(r"local(?:\[[^],]*(?:,\s*(\d+))?\])?")


def spark_findings(
    spark: SparkSession, needs: Needs, store: Store | None = None
) -> Iterator[Finding]:
    """Findings on the session, its way to the store and its executors; starts two small jobs."""
    master = _setting(spark, "spark.master", "a cluster")
    yield ok(Check.SPARK_START, SESSION, f"Spark {spark.version} runs on {master}")
    try:
        refuse_settings(spark)
    except ConfigError as error:
        yield fault_of(Check.SPARK_SPECULATION, SESSION, error.problem)
    local = _LOCAL_MASTER.fullmatch(master)
    tries = (local[1] or "1") if local else _setting(spark, "spark.task.maxFailures", "4")
    if tries == "1":
        yield warning(
            Check.SPARK_TASK_RETRIES,
            SESSION,
            "A task is tried once: one connection that is cut while the plan is read ends the "
            "whole sweep early",
            "set spark.task.maxFailures=4; in local mode, the master local[*,4]",
        )
    if store is not None:
        yield from _jdbc(spark, store)
    yield from _executors(spark, needs)


def _setting(spark: SparkSession, name: str, default: str) -> str:
    try:
        return str(spark.conf.get(name, default))
    except PySparkException:
        # Some platforms hide some settings.
        return default


def _jdbc(spark: SparkSession, store: Store) -> Iterator[Finding]:
    """Whether an executor reads from the store's database."""
    check = Check.SPARK_JDBC
    try:
        with store.open_driver() as session:
            source = session.due.jdbc()
        one_row_df(spark, source).collect()
    except DuesweepError as error:
        yield skipped(check, SESSION, f"Spark did not read from the store: {error.text}")
    except SPARK_ERRORS as error:
        why = cause(error)
        advice = why.advice or "check store.jdbc_url, and that all executors reach the server"
        yield fault(check, SESSION, f"Spark cannot read from the store: {why.text}", advice)


def _executors(spark: SparkSession, needs: Needs) -> Iterator[Finding]:
    """Whether each machine loads the modules and drivers of a task."""
    check = Check.EXECUTOR_DRIVERS
    tasks = min(SparkEngine(spark).tasks * _TASKS_PER_CORE, _MOST_TASKS)
    # Not by Arrow, which may be missing there.
    ask = F.udf(question(needs, duesweep.__version__, _TASK_SECONDS), "string", useArrow=False)
    answers_df = spark.range(0, tasks, 1, tasks).select(ask("id").alias("answer"))
    try:
        answers = sorted({row["answer"] for row in answers_df.collect()})
    except SPARK_ERRORS as error:
        why = cause(error)
        text = f"No Python of duesweep's runs there: {why.text}"
        advice = why.advice or (
            "give the executors the driver's Python version, by spark-submit.sh, which ships an "
            "environment, or PYSPARK_PYTHON"
        )
        yield fault(check, "the executors", text, advice)
        return
    for host, failures in map(json.loads, answers):
        for name, reason in failures.items():
            yield fault(
                check,
                host,
                f"{name} cannot be loaded: {reason}",
                f"bring {name} to this host: with the environment that spark-submit.sh ships, as a "
                "library of the cluster, or, what pyodbc loads, as a package of the system "
                "(Debian, Ubuntu: libodbc2, libgssapi-krb5-2)",
            )
        if not failures:
            yield ok(check, host, "All drivers can be loaded")


def question(needs: Needs, version: str, seconds: float) -> Callable[[int], str]:
    """A task's answer about the machine that it runs on, as a function that returns JSON: the host,
    and reasons why a needed module cannot be loaded, or is of another version than duesweep's
    `version`. It takes `seconds`, so that tasks reach all executors. duesweep may be missing there,
    so it travels as code (functions in functions), and uses plain values only.
    """
    wanted = [("module", name) for name in needs.modules]
    wanted += [("driver", name) for name in needs.odbc_drivers]

    def load(kind: str, name: str) -> Any:
        import ctypes  # noqa: PLC0415
        from importlib import import_module  # noqa: PLC0415, TID251 - of drivers

        if name == "pyodbc":
            return import_module("duesweep.drivers.sqlserver.dsn").odbc()
        if kind == "module":
            found = getattr(import_module(name), "__version__", None)
            if name == "duesweep" and found != version:
                raise LookupError(f"it is {found}, and the driver has {version}")
            return found
        if not name:
            name = import_module("duesweep.drivers.sqlserver.dsn").driver_library()
        if "/" in name:
            return ctypes.CDLL(name)
        if name not in import_module("pyodbc").drivers():
            raise LookupError("unixODBC knows no driver of this name")
        return None

    def answer(_: int) -> str:
        import json  # noqa: PLC0415
        import platform  # noqa: PLC0415
        import time  # noqa: PLC0415

        failures = {}
        for kind, name in wanted:
            try:
                load(kind, name)
            except Exception as error:  # noqa: BLE001 - whatever a broken package raises
                failures[name or "the ODBC driver"] = f"{type(error).__name__}: {error}"
        time.sleep(seconds)
        return json.dumps([platform.node(), failures], sort_keys=True)

    return answer
