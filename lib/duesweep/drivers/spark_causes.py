"""Why Spark failed: the deepest cause in the text of an error, whether it may pass, and what to do.

The text has the chain of the JVM's causes and, if code of a task failed, the stack of the Python
worker; `tests/unit/drivers/spark_errors.json` has texts of Spark 4.1. It needs no PySpark.
"""

import re
from collections.abc import Sequence

from duesweep.core import errors
from duesweep.core.causes import Cause, Meaning, meant

# Causes, the deepest one last; the causes of suppressed errors are indented.
_CAUSE = re.compile(r"^Caused by: (?!\[CIRCULAR)(.*)$", re.MULTILINE)
# A worker's stack: lines of its frames are indented, the error is not. The JVM's stack follows.
_WORKERS_ERROR = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t]+.*\n|\n)*(?P<error>\S.*)"
)
# An error of ours that left a task.
_OWN = re.compile(rf"{re.escape(errors.__name__)}\.(\w+): ")
_PACKAGE = re.compile(r"^(?:[A-Za-z_0-9]+\.)+(?=[A-Z])")
# Of the output of a JVM that did not start.
_THROWN = re.compile(r'(?:Caused by:|Exception in thread "[^"]*") (.*)')


_JAR = "give Spark the jar: --packages {}, or --jars with the file"
# The first one that fits counts.
MEANINGS = (
    Meaning(
        r"No space left on device|Disk quota exceeded|Input/output error|Stale file handle"
        r"|Read-only file system|Transport endpoint is not connected"
        # Of a process that cannot start another one, or open a file, now.
        r"|Resource temporarily unavailable|Too many open files|unable to create native thread"
        r"|insufficient memory for the Java Runtime",
        may_pass=True,
        says=r"\g<0>",
    ),
    Meaning(
        r"Status Code: 5\d\d|Service Unavailable|SlowDown|UnknownHostException|ConnectException"
        r"|NoRouteToHostException|Network is unreachable|Broken pipe|ExecutorLostFailure"
        r"|SocketTimeoutException|ConnectTimeoutException|Connection reset|\bUNAVAILABLE\b"
        r"|DEADLINE_EXCEEDED|[Tt]imed out|All masters are unresponsive|Cannot allocate memory",
        may_pass=True,
    ),
    # Of a job or a call after its context ended: `spark.stop()`, or the JVM got a TERM.
    Meaning(
        r"SparkContext (?:was|has been) shut ?down|stopped SparkContext",
        may_pass=True,
        says="Spark was shut down (its JVM was terminated, or its session stopped)",
    ),
    # The JVM unpacks libraries, such as snappy's, into its temporary folder.
    Meaning(
        r"(UnsatisfiedLinkError): (\S+): (?:\S+: )?([^\n\[]+)",
        may_pass=False,
        advice="programs may not run in the JVM's temporary folder (noexec): set JAVA_TOOL_OPTIONS="
        "-Dorg.xerial.snappy.tempdir=FOLDER in the environment, with a folder that allows that",
        says=r"\1: \2 could not be loaded: \3",
    ),
    Meaning(
        r"\[(?:PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION)\]",
        may_pass=False,
        advice="Spark Connect needs more packages on this machine: install pyspark[connect]",
    ),
    Meaning(
        r"PYTHON_VERSION_MISMATCH|Python in worker has different version",
        may_pass=False,
        advice="set PYSPARK_PYTHON to a Python of the driver's version, which all executors have",
    ),
    Meaning(
        r"\[DELTA_(?:FAILED_TO_MERGE_FIELDS|VIOLATE_\w*|NOT_NULL_\w*|CANNOT_MODIFY_APPEND_ONLY)\]",
        may_pass=False,
        advice="find out who changed the table (`DESCRIBE HISTORY`), and undo that",
    ),
    Meaning(
        r"(?m)^(?:ModuleNotFoundError|ImportError): ",
        may_pass=False,
        advice="install duesweep with its packages on all executors, or send an environment with "
        "--archives and PYSPARK_PYTHON; `duesweep doctor` tries each executor",
    ),
    Meaning(
        r"Cannot run program \"[^\"]*py[^\"]*\"",
        may_pass=False,
        advice="set PYSPARK_PYTHON to a Python that all executors have",
        says=r"\g<0>",
    ),
    Meaning(
        r"invalid null input: name|getpwuid\(\): uid not found|basedir must be absolute: \?"
        r"|Invalid UID, could not determine effective user",
        may_pass=False,
        advice="Java needs a name for this process's user id: add a line for the id to "
        "/etc/passwd, or run as a user who has one",
        says="this process's user id has no name",
    ),
    Meaning(
        r"ClassNotFoundException: org\.postgresql\.",
        may_pass=False,
        advice=_JAR.format("org.postgresql:postgresql:42.7.8"),
    ),
    Meaning(
        r"ClassNotFoundException: com\.microsoft\.sqlserver\.",
        may_pass=False,
        advice=_JAR.format("com.microsoft.sqlserver:mssql-jdbc:12.10.2.jre11"),
    ),
    Meaning(
        r"ClassNotFoundException: (?:io\.delta|org\.apache\.spark\.sql\.delta|delta)\."
        r"|Cannot find catalog plugin class .*DeltaCatalog|Failed to find the data source: delta",
        may_pass=False,
        advice=_JAR.format("io.delta:delta-spark_4.1_2.13:4.4.0"),
    ),
    Meaning(
        r"FindException: Module \S+ not found|No LoginModule found",
        may_pass=False,
        advice="this Java lacks a module that Spark needs: install a whole Java 17 or 21, and let "
        "JAVA_HOME name it",
    ),
    Meaning(
        r"py4j\.Py4JException: (?:Method|Constructor) .* does not exist",
        may_pass=False,
        advice="PySpark and Spark's JVM have different versions: unset SPARK_HOME, or install the "
        "PySpark of that Spark",
    ),
    Meaning(
        r"MASTER_URL_INVALID|Could not parse Master URL|Invalid master URL",
        may_pass=False,
        advice="correct --master: local[*], yarn, spark://HOST:7077 or k8s://URL",
    ),
    Meaning(
        r"INVALID_(?:DRIVER|EXECUTOR)_MEMORY|(?:Invalid|Too small) (?:maximum|initial) heap"
        r"|Unrecognized (?:VM )?option|Could not reserve enough space",
        may_pass=False,
        advice="correct --driver-memory, --executor-memory and --driver-java-options",
    ),
    Meaning(
        r"JAVA_GATEWAY_EXITED",
        may_pass=False,
        advice="its own words are above; `java -version` has to say 17 or 21",
    ),
)


def cause_of(text: str, *, has_causes: bool = True) -> Cause:
    """The cause in an error's text. Without `has_causes` its chain is only a parser's stack."""
    workers = [found["error"] for found in _WORKERS_ERROR.finditer(text)]
    if workers and (own := _OWN.match(workers[-1])):
        kind = getattr(errors, own[1], None)
        lasting = errors.ConfigError, errors.RefusedStatementError
        if isinstance(kind, type) and issubclass(kind, lasting):
            # It has its advice.
            return Cause(f"on an executor, {workers[-1][own.end() :]}", may_pass=False)
    return meant(text, _phrase(text, workers, has_causes=has_causes), MEANINGS)


def cause_of_start(lines: Sequence[str]) -> Cause:
    """The cause in the last lines that a JVM wrote before it ended at its start."""
    said = [line for line in lines if line.strip() and not line[0].isspace()]
    causes = [found[1] for line in said if (found := _THROWN.match(line))]
    phrase = (causes or said or ["it said nothing"])[-1]
    return meant("\n".join(lines), _PACKAGE.sub("", phrase).strip(" :"), MEANINGS)


def _phrase(text: str, workers: Sequence[str], *, has_causes: bool) -> str:
    if workers:
        return _PACKAGE.sub("", workers[-1]).strip(" :")
    causes = _CAUSE.findall(text) if has_causes else []
    lines = [line.strip(" :") for line in text.splitlines() if line.strip(" :")]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        del lines[0]
    said = causes[-1] if causes else next(iter(lines), "an error without a text")
    return _PACKAGE.sub("", said).strip(" :")
