"""The engine of a sweep: this process, or a Spark session."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from duesweep import config as configuration
from duesweep.sweep.job import SweepContext
from duesweep.sweep.sweep import InProcessEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from duesweep.sweep.sweep import Engine


@contextmanager
def opened_engine(
    context: SweepContext,
    *,
    on_spark: bool,
    spark: "SparkSession | None" = None,
    progressed: Callable[[], object] | None = None,
) -> Iterator["Engine"]:
    """An engine `on_spark` or in this process. `spark` is the session to use; None: the one that is
    there, else a new one. `progressed` is called when batches are committed.
    """
    if not on_spark:
        yield InProcessEngine(progressed=progressed)
        return
    from duesweep.drivers.spark import map_spark_errors, spark_session  # noqa: PLC0415 - loads Spark
    from duesweep.sweep.spark import SparkEngine  # noqa: PLC0415 - loads Spark

    with map_spark_errors():
        session = spark or spark_session(configuration.jars())
        yield SparkEngine(session, context.timeouts, progressed=progressed)
