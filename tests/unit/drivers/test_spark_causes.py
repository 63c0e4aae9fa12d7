"""The sentence on an error of Spark: its deepest cause, whether it may pass, and what to do."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, SparkRuntimeException

from duesweep.core.errors import (
    ConfigError,
    DuesweepError,
    OdbcDriverError,
    RefusedStatementError,
    SparkError,
    StoreError,
)
from duesweep.core.result import exit_code_of
from duesweep.drivers import spark_causes
from duesweep.drivers.spark import cause, is_conflict, map_spark_errors
from duesweep.drivers.spark_causes import MEANINGS, cause_of, cause_of_start

_JARS = Path(spark_causes.__file__).with_name("jars.toml")
# Of Spark 4.1, made by running it: the name says how.
_TEXTS = json.loads((Path(__file__).parent / "spark_errors.json").read_text(encoding="utf-8"))
_LASTING = {
    "executor without msgspec": ("ModuleNotFoundError: No module named 'msgspec'", "executors"),
    "executor of another Python": ("Python in worker has different version", "PYSPARK_PYTHON"),
    "executor without that Python": ("Cannot run program", "PYSPARK_PYTHON"),
    "no PostgreSQL driver": ("ClassNotFoundException: org.postgresql.Driver", "--packages org.p"),
    "no Delta": (
        "ClassNotFoundException: org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "--packages io.delta",
    ),
    "Connect without pandas": ("Pandas >= ", "pyspark[connect]"),
    "no module of Java's for logins": ("No LoginModule found", "whole Java"),
    "user id without a name": ("user id has no name", "/etc/passwd"),
    "wrong master": ("Could not parse Master URL", "--master"),
    "wrong memory": ("System memory 104857600 must be at least 471859200", "--driver-memory"),
}


@pytest.mark.parametrize("name", _TEXTS)
def test_fault_that_a_person_has_to_correct_is_told_with_its_deepest_cause(name: str) -> None:
    expected, advice = _LASTING[name]

    why = cause_of(_TEXTS[name])

    assert expected in why.text
    assert len(why.text.splitlines()) == 1
    assert advice in str(why.advice)
    assert why.is_lasting


@pytest.mark.parametrize(
    ("error", "is_lasting"),
    [
        (
            OdbcDriverError("pyodbc cannot be loaded: Connection timed out", advice="install it"),
            True,
        ),
        (ConfigError("The store refuses it", advice="ask its owner"), True),
        (RefusedStatementError("A trigger drops rows"), True),
        (StoreError("The server is away", transient=True), False),
    ],
)
def test_error_of_ours_that_ends_a_task_lasts_as_it_does_in_process(
    error: DuesweepError, *, is_lasting: bool
) -> None:
    text = _TEXTS["executor without msgspec"].replace(
        "ModuleNotFoundError: No module named 'msgspec'",
        f"duesweep.core.errors.{type(error).__name__}: {error}",
    )

    why = cause_of(text)

    assert why.is_lasting == is_lasting
    assert str(error) in why.text


@pytest.mark.parametrize(
    ("output", "expected", "advice"),
    [
        (
            "Error occurred during initialization of boot layer\n"
            "java.lang.module.FindException: Module jdk.incubator.vector not found",
            "FindException: Module jdk.incubator.vector not found",
            "whole Java",
        ),
        (
            'Exception in thread "main" java.lang.IllegalArgumentException: basedir must be '
            "absolute: ?/.ivy2.5.2/local\n\tat org.apache.ivy.util.Checks.checkAbsolute(x.java:48)",
            "user id has no name",
            "/etc/passwd",
        ),
        (
            "Invalid maximum heap size: -Xmx4gg\nError: Could not create the Java Virtual Machine.",
            "Could not create the Java Virtual Machine",
            "--driver-memory",
        ),
        ("", "it said nothing", "None"),
    ],
)
def test_jvm_that_does_not_start_is_told_by_its_own_words(
    output: str, expected: str, advice: str
) -> None:
    why = cause_of_start(output.splitlines())

    assert expected in why.text
    assert advice in str(why.advice)
    assert not why.may_pass


def test_jars_in_advice_are_those_of_the_package() -> None:
    told = re.findall(r"--packages (\S+),", " ".join(str(each.advice) for each in MEANINGS))
    brought = tomllib.loads(_JARS.read_text("utf-8"))["coordinates"]

    assert sorted(told) == sorted([*brought["every"], *brought["4.1"]])


_FULL_DISK = """An error occurred while calling o123.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 7.0 failed
\tat java.base/java.util.concurrent.ConcurrentHashMap.computeIfAbsent(ConcurrentHashMap.java:1)
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:3)
Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\tat org.apache.hadoop.fs.RawLocalFileSystem.write(RawLocalFileSystem.java:301)
"""
_NO_LIBRARY = SparkRuntimeException(
    """An error occurred while calling o77.save.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/l
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.x(QueryExecutionErrors.scala:1)
Caused by: java.lang.NoClassDefFoundError: Could not initialize class org.xerial.snappy.Snappy
\t... 16 more
\tCaused by: java.lang.ExceptionInInitializerError: Exception java.lang.UnsatisfiedLinkError: \
/tmp/snappy-1.1.10-dc-libsnappyjava.so: /tmp/snappy-1.1.10-dc-libsnappyjava.so: failed to map \
segment from shared object [in thread "Executor task launch worker"]
\t\t... 31 more
Caused by: [CIRCULAR REFERENCE: java.lang.ExceptionInInitializerError: Exception java.lang.x]
"""
)
_LOST_FILE = SparkRuntimeException(
    """An error occurred while calling o109.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error
Caused by: java.io.FileNotFoundException: File file:/l/errors/part-0.parquet does not exist
\t... 26 more
"""
)


@pytest.mark.parametrize(
    ("error", "expected", "passes"),
    [
        (AnalysisException(_FULL_DISK), "No space left on device", True),
        (_NO_LIBRARY, "libsnappyjava.so could not be loaded: failed to map segment", False),
        (_LOST_FILE, "FileNotFoundException: File file:/l/errors/part-0.parquet does not", False),
        (AnalysisException("write failed: Disk quota exceeded"), "Disk quota exceeded", True),
        (AnalysisException("PUT: Status Code: 503; slow"), "PUT: Status Code: 503; slow", True),
        (AnalysisException("PUT: Status Code: 403; no"), "PUT: Status Code: 403; no", False),
        (
            AnalysisException(
                'Cannot run program "python3": error=11, Resource temporarily unavailable'
            ),
            "Resource temporarily unavailable",
            True,
        ),
        (AnalysisException("ImportError: libz.so: Too many open files"), "Too many open", True),
        (AnalysisException("NoRouteToHostException: No route to host"), "No route to host", True),
        (AnalysisException("ExecutorLostFailure (executor 3): killed"), "executor 3", True),
        (AnalysisException("no such column\n at x"), "no such column", False),
        (AnalysisException("Job cancelled: SparkContext was shut down"), "shut down", True),
        (AnalysisException("Cannot call methods on a stopped SparkContext."), "shut down", True),
        (Py4JNetworkError("Answer from Java side is empty"), "JVM has ended", True),
        (ConnectionRefusedError(111, "Connection refused"), "JVM has ended", True),
    ],
)
def test_spark_error_is_one_line_and_known_to_pass_or_to_last(
    error: Exception, expected: str, *, passes: bool
) -> None:
    why = cause(error)

    assert expected in why.text
    assert len(why.text.splitlines()) == 1
    assert bool(why.may_pass) is passes
    with pytest.raises(SparkError) as caught, map_spark_errors():
        raise error
    assert exit_code_of(caught.value) == (4 if passes else 2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (_FULL_DISK, False),
        ("[DELTA_CONCURRENT_APPEND] Files were added by a concurrent update", True),
        (": io.delta.exceptions.ConcurrentAppendException: x", True),
        (": org.apache.spark.sql.delta.MetadataChangedException: x", True),
    ],
)
def test_conflict_is_known_by_the_name_of_its_error(text: str, *, expected: bool) -> None:
    assert is_conflict(AnalysisException(text)) is expected
