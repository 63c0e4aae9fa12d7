"""The ledger with its writer."""

from typing import TYPE_CHECKING

from duesweep.core.ledger_writer import LedgerWriter
from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Timeouts
from duesweep.ledger.ledger import Ledger
from duesweep.ledger.writers import resolve_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_ledger(
    root: str,
    writer: LedgerWriter,
    spark: "SparkSession | None",
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> Ledger:
    """The ledger under `root`; Spark's writer needs the session."""
    if resolve_writer(writer, root, spark) is LedgerWriter.SPARK:
        from duesweep.ledger.spark.tables import SparkTables  # noqa: PLC0415 - loads Spark

        if spark is None:
            raise ValueError("The Spark writer needs a session")
        return Ledger(SparkTables(spark, root))
    from duesweep.ledger.delta_rs.tables import DeltaRsTables  # noqa: PLC0415 - slow to load

    return Ledger(DeltaRsTables(root, timeouts.silence_seconds))
