"""What Spark raises: PySpark's own errors, the JVM's where PySpark knows no name for them, and what
a JVM that is gone makes of a call.

Delta's exceptions, and a failed `foreachPartition`, are of the second kind.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from duesweep.errors import SparkError, raise_interruption

SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)

# What a system call, a file system or an object store says, wherever it is in the chain of causes.
_STORAGE = re.compile(
    r"No space left on device|Disk quota exceeded|Input/output error|Stale file handle"
    r"|Read-only file system|Transport endpoint is not connected"
)
_OUT_OF_REACH = re.compile(
    r"Status Code: 5\d\d|Service Unavailable|SlowDown|UnknownHostException|ConnectException"
    r"|SocketTimeoutException|ConnectTimeoutException|Connection reset|\bUNAVAILABLE\b"
    r"|DEADLINE_EXCEEDED|[Tt]imed out|JAVA_GATEWAY_EXITED"
)

# By names of errors: a stack of any other has a ConcurrentHashMap, too.
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
    lines = [line.strip(" :") for line in text.splitlines() if line.strip(" :")]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        return lines[1]
    return lines[0] if lines else type(error).__name__


def is_transient(error: BaseException) -> bool:
    """Whether it may pass by itself: storage is full or away, or the JVM is gone."""
    text = _text(error)
    return is_jvm_gone(error) or any(p.search(text) for p in (_STORAGE, _OUT_OF_REACH))


def is_conflict(error: BaseException) -> bool:
    """Whether somebody else's commit to a Delta table came between."""
    return bool(_CONFLICT.search(_text(error)))


def is_jvm_gone(error: BaseException) -> bool:
    """Whether a call found no JVM, or lost it."""
    if isinstance(error, Py4JError):
        # Without a Java exception there was nobody to raise one.
        return not isinstance(error, Py4JJavaError)
    return isinstance(error, ConnectionError)


@contextmanager
def spark_faults() -> Iterator[None]:
    """Raise what Spark raises as `SparkError`."""
    try:
        yield
    except SPARK_ERRORS as error:
        raise_interruption(error)
        raise SparkError(
            f"Spark failed: {sentence(error)}; what was done is in the journal, and the next sweep "
            "goes on",
            transient=is_transient(error),
        ) from error


def _text(error: BaseException) -> str:
    """All that it says, the causes included; some of PySpark's keep the JVM's stack apart."""
    try:
        return "\n".join([str(error), str(getattr(error, "_stackTrace", None) or "")])
    except SPARK_ERRORS:
        # A Java exception is asked for its text only now, and the JVM may be gone since.
        return type(error).__name__
