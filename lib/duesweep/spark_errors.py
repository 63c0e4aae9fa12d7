"""What Spark raises: PySpark's own errors, and the JVM's where PySpark knows no name for them.

Delta's exceptions, and a failed `foreachPartition`, are of the second kind.
"""

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

SPARK_ERRORS = (PySparkException, Py4JError)


def sentence(error: Exception) -> str:
    """The line of a Spark error that says what happened."""
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip(" :")]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        return lines[1]
    return lines[0] if lines else type(error).__name__
