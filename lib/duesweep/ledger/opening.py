"""The ledger with its writer."""

import sys
from typing import TYPE_CHECKING

from duesweep.core.ledger_writer import LedgerWriter
from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Timeouts
from duesweep.errors import ConfigError
from duesweep.ledger.ledger import Ledger
from duesweep.ledger.writers import can_delta_rs_reach, resolve_writer

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


def open_for_reading(root: str, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> Ledger:
    """The ledger under `root`, to read it: by delta-rs where that can, whoever writes it, else by a
    Spark session that is there. Raises `ConfigError` where there is none: to start one could take
    longer than a reader waits, and a session without a cluster's settings finds no catalog.
    """
    if can_delta_rs_reach(root):
        from duesweep.ledger.delta_rs.tables import DeltaRsTables  # noqa: PLC0415 - slow to load

        return Ledger(DeltaRsTables(root, timeouts.silence_seconds))
    pyspark = sys.modules.get("pyspark.sql")
    spark = None if pyspark is None else pyspark.SparkSession.getActiveSession()
    if spark is None:
        raise ConfigError(
            f"Only Spark can read the ledger at {root}, and no Spark session is there",
            advice="run it in a notebook or a job on the cluster, or query the tables there",
        )
    from duesweep.ledger.spark.tables import SparkTables  # noqa: PLC0415 - loads Spark

    return Ledger(SparkTables(spark, root))
