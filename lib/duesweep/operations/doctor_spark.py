"""The doctor's findings on a Spark session and its executors. DataFrame API only."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

import duesweep
from duesweep.config.adapters import Needs
from duesweep.core.errors import DuesweepError, capitalized
from duesweep.core.finding import SESSION, Check, Finding, fault, ok, skipped, warning
from duesweep.drivers.spark import SPARK_ERRORS, cause
from duesweep.stores.base import Store
from duesweep.sweep.spark import SparkEngine, one_row_df

_ENOUGH_TRIES = 2
_TASKS_PER_CORE, _MOST_TASKS = 2, 1_000
# A task that ends at once frees its core for the next one, and other executors get none.
_TASK_SECONDS = 0.2
# local[4] tries once, local[4,3] three times.
_LOCAL_MASTER = re.compile(r"local(?:\[[^],]*(?:,\s*(\d+))?\])?")
_DEFAULT_TRIES = "4"

# A task's answer to `question`.
Answer = Mapping[str, Any]


def spark_findings(
    spark: SparkSession, needs: Needs, store: Store | None = None
) -> Iterator[Finding]:
    """Findings on the session, its way to the store and its executors; starts two small jobs."""
    master = _setting(spark, "spark.master", "a cluster")
    yield ok(Check.SPARK_START, SESSION, f"Spark {spark.version} runs on {master}")
    yield speculation(_setting(spark, "spark.speculation", "false"))
    yield task_tries(_tries(spark, master))
    yield _session_zone(_setting(spark, "spark.sql.session.timeZone", "UTC"))
    yield jvm_zone(_ask_jvm_zone(spark))
    if store is not None:
        yield _jdbc(spark, store)
    try:
        answers = _ask_executors(spark, needs)
    except SPARK_ERRORS as error:
        why = cause(error)
        advice = "Give the executors the driver's Python version, by spark-submit.sh, which ships "
        advice += "an environment, or PYSPARK_PYTHON"
        yield fault(
            Check.EXECUTOR_DRIVERS,
            "the executors",
            f"No Python of duesweep's runs there: {why.text}",
            capitalized(why.advice or advice),
        )
        return
    for answer in answers:
        yield from executor_findings(answer, _python(), duesweep.__version__)


def _setting(spark: SparkSession, name: str, default: str) -> str:
    try:
        return str(spark.conf.get(name, default))
    except PySparkException:
        # Some platforms hide some settings.
        return default


def _jdbc(spark: SparkSession, store: Store) -> Finding:
    """Whether an executor reads from the store's database."""
    check = Check.SPARK_JDBC
    try:
        with store.open_driver() as session:
            source = session.due.jdbc()
        one_row_df(spark, source).collect()
    except DuesweepError as error:
        return skipped(check, SESSION, f"Spark did not read from the store: {error.text}")
    except SPARK_ERRORS as error:
        why = cause(error)
        advice = why.advice or "check store.jdbc_url, and that all executors reach the server"
        text = f"Spark cannot read from the store: {why.text}"
        return fault(check, SESSION, text, capitalized(advice))
    return ok(check, SESSION, "Spark reads from the store")


def _tries(spark: SparkSession, master: str) -> int | None:
    local = _LOCAL_MASTER.fullmatch(master)
    tries = _setting(spark, "spark.task.maxFailures", _DEFAULT_TRIES)
    if local:
        tries = local[1] or "1"
    return int(tries) if tries.isdecimal() else None


def _ask_jvm_zone(spark: SparkSession) -> str | None:
    try:
        row = spark.sql("SELECT reflect('java.time.ZoneId', 'systemDefault') AS zone").first()
    except SPARK_ERRORS:
        return None
    return str(row["zone"]) if row else None


def _ask_executors(spark: SparkSession, needs: Needs) -> Sequence[Answer]:
    """The answer of each machine to `question`."""
    tasks = min(SparkEngine(spark).tasks * _TASKS_PER_CORE, _MOST_TASKS)
    # Not by Arrow, which may be missing there.
    ask = F.udf(question(needs, _TASK_SECONDS), "string", useArrow=False)
    answers_df = spark.range(0, tasks, 1, tasks).select(ask("id").alias("answer"))
    return list(map(json.loads, sorted({row["answer"] for row in answers_df.collect()})))


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def question(needs: Needs, seconds: float) -> Callable[[int], str]:
    """A task's answer about the machine that it runs on, as a function that returns JSON: host,
    versions, and reasons why a needed module cannot be loaded. It takes `seconds`, so that tasks
    reach all executors. duesweep may be missing there, so it travels as code (functions in
    functions), and uses plain values only.
    """
    load = _loader()
    wanted = [("module", name) for name in needs.modules]
    wanted += [("driver", name) for name in needs.odbc_drivers]

    def answer(_: int) -> str:
        import json  # noqa: PLC0415
        import platform  # noqa: PLC0415
        import sys  # noqa: PLC0415
        import time  # noqa: PLC0415

        failures = {}
        for kind, name in wanted:
            try:
                load(kind, name)
            except Exception as error:  # noqa: BLE001 - whatever a broken package raises
                failures[name or "the ODBC driver"] = f"{type(error).__name__}: {error}"
        time.sleep(seconds)
        found = {
            "host": platform.node(),
            "python": f"{sys.version_info.major}.{sys.version_info.minor}",
            "duesweep": getattr(sys.modules.get("duesweep"), "__version__", None),
            "failures": failures,
        }
        return json.dumps(found, sort_keys=True)

    return answer


def _loader() -> Callable[[str, str], None]:
    def load(kind: str, name: str) -> None:
        import ctypes  # noqa: PLC0415
        from importlib import import_module  # noqa: PLC0415, TID251 - of drivers

        if name == "pyodbc":
            import_module("duesweep.drivers.sqlserver.dsn").odbc()
        elif kind == "module":
            import_module(name)
        elif not name:
            library = import_module("duesweep.drivers.sqlserver.dsn")
            ctypes.CDLL(library.driver_library())
        elif "/" in name:
            ctypes.CDLL(name)
        elif name not in import_module("pyodbc").drivers():
            raise LookupError("unixODBC knows no driver of this name")

    return load


def speculation(setting: str) -> Finding:
    """Whether Spark starts second copies of tasks."""
    if setting.lower() != "true":
        return ok(Check.SPARK_SPECULATION, SESSION, "spark.speculation is off")
    return fault(
        Check.SPARK_SPECULATION,
        SESSION,
        "spark.speculation is on: Spark starts second copies of slow tasks, which claim next to "
        "the first and load both databases; if a queue has a connection of its own, the copy that "
        "is killed may leave messages delivered twice",
        "Set spark.speculation=false where the session is prepared (--conf, the cluster's policy)",
    )


def task_tries(tries: int | None) -> Finding:
    """How often a task is tried; None: that is not known."""
    check = Check.SPARK_TASK_RETRIES
    if tries is None:
        return skipped(check, SESSION, "It is unknown how often a task is tried")
    if tries >= _ENOUGH_TRIES:
        return ok(check, SESSION, f"A task is tried {tries} times")
    return warning(
        check,
        SESSION,
        "A task is tried once: one connection that is cut while the plan is read ends the whole "
        "sweep early",
        "Set spark.task.maxFailures=4; in local mode, the master local[*,4]",
    )


def _session_zone(zone: str) -> Finding:
    more = "" if zone == "UTC" else "; instants are right, and shown in that zone"
    return ok(Check.SPARK_TIME_ZONE, SESSION, f"spark.sql.session.timeZone is {zone}{more}")


def jvm_zone(zone: str | None) -> Finding:
    """The JVM's time zone; None: that is not known."""
    if zone is None:
        return skipped(Check.JVM_TIME_ZONE, SESSION, "The JVM's time zone is unknown")
    text = f"The JVM is in {zone}, which does not change due times"
    return ok(Check.JVM_TIME_ZONE, SESSION, text)


def executor_findings(answer: Answer, python: str, version: str) -> Iterator[Finding]:
    """Findings from a machine's answer; `python` and `version` are the driver's."""
    host, failures = answer["host"], answer["failures"]
    for name, error in failures.items():
        yield fault(
            Check.EXECUTOR_DRIVERS,
            host,
            f"{name} cannot be loaded: {error}",
            f"Bring {name} to this host: with the environment that spark-submit.sh ships, as a "
            "library of the cluster, or, what pyodbc loads, as a package of the system "
            "(Debian, Ubuntu: libodbc2, libgssapi-krb5-2)",
        )
    if not failures:
        yield ok(Check.EXECUTOR_DRIVERS, host, "All drivers can be loaded")
    text = f"Python {answer['python']}, duesweep {answer['duesweep'] or '-'}"
    # That duesweep is missing has been said.
    if answer["duesweep"] is None or (answer["python"], answer["duesweep"]) == (python, version):
        yield ok(Check.EXECUTOR_VERSIONS, host, text)
    else:
        yield warning(
            Check.EXECUTOR_VERSIONS,
            host,
            f"{text}; the driver has Python {python}, duesweep {version}",
            "Bring the same package and Python to all hosts, by spark-submit.sh or the cluster's "
            "libraries",
        )
