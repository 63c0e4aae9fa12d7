"""The errors that Spark raises: PySpark's own, py4j's, and those of a call to a JVM that is gone.

Errors of the JVM without a class in PySpark come as py4j's: Delta's exceptions, for example, and
a failed `foreachPartition`.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from duesweep.errors import SparkError, raise_interruption

SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)

# Texts of system calls, file systems and object stores, anywhere in the chain of causes.
_STORAGE = re.compile(
    r"No space left on device|Disk quota exceeded|Input/output error|Stale file handle"
    r"|Read-only file system|Transport endpoint is not connected"
)
_OUT_OF_REACH = re.compile(
    r"Status Code: 5\d\d|Service Unavailable|SlowDown|UnknownHostException|ConnectException"
    r"|SocketTimeoutException|ConnectTimeoutException|Connection reset|\bUNAVAILABLE\b"
    r"|DEADLINE_EXCEEDED|[Tt]imed out|JAVA_GATEWAY_EXITED"
)

# What Spark says of a job or a call after its context ended: `spark.stop()`, or the JVM got a TERM.
_SHUT_DOWN = re.compile(r"SparkContext (was|has been) shut ?down|stopped SparkContext")

# Names of errors only: "Concurrent" alone would match a ConcurrentHashMap in any stack.
_CONFLICT = re.compile(
    r"DELTA_CONCURRENT|DELTA_PROTOCOL_CHANGED|DELTA_METADATA_CHANGED"
    r"|Concurrent\w*Exception|(Metadata|Protocol)ChangedException"
)


def sentence(error: BaseException) -> str:
    """The line of a Spark error that says what happened."""
    if is_jvm_gone(error):
        return "Spark's JVM has ended (killed, or out of memory)"
    text = _text(error)
    found = _STORAGE.search(text)
    if found:
        return found[0]
    if _SHUT_DOWN.search(text):
        return "Spark was shut down (its JVM was terminated, or its session stopped)"
    lines = [line.strip(" :") for line in text.splitlines() if line.strip(" :")]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        return lines[1]
    return lines[0] if lines else type(error).__name__


def is_transient(error: BaseException) -> bool:
    """Whether the fault may pass by itself: storage is full or out of reach, or Spark has ended."""
    text = _text(error)
    return is_jvm_gone(error) or any(p.search(text) for p in (_STORAGE, _OUT_OF_REACH, _SHUT_DOWN))


def is_conflict(error: BaseException) -> bool:
    """Whether another process committed to the Delta table at the same time."""
    return bool(_CONFLICT.search(_text(error)))


def is_jvm_gone(error: BaseException) -> bool:
    """Whether a call found no JVM, or lost its connection to it."""
    if isinstance(error, Py4JError):
        # Every error that the JVM itself raises comes with its Java exception.
        return not isinstance(error, Py4JJavaError)
    return isinstance(error, ConnectionError)


@contextmanager
def map_spark_errors() -> Iterator[None]:
    """Turn Spark's errors into `SparkError`."""
    try:
        yield
    except SPARK_ERRORS as error:
        raise_interruption(error)
        raise SparkError(
            f"Spark failed: {sentence(error)}; the journal has what was done, and the next sweep "
            "continues",
            transient=is_transient(error),
        ) from error


def _text(error: BaseException) -> str:
    """The error's text with all causes. Some of PySpark's errors keep the JVM's stack apart."""
    try:
        return "\n".join([str(error), str(getattr(error, "_stackTrace", None) or "")])
    except SPARK_ERRORS:
        # py4j asks the JVM for the text only now, and the JVM may be gone.
        return type(error).__name__
