"""Which writer a ledger has, and the ledger with it."""

import sys
from typing import TYPE_CHECKING

from duesweep.core.errors import ConfigError
from duesweep.core.policy import DEFAULT_TIMEOUTS, LedgerWriter, Timeouts
from duesweep.ledger import locations
from duesweep.ledger.ledger import Ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Where its commits are safe beside another writer's: https://delta-io.github.io/delta-rs/
_SCHEMES = {"", "file", "s3", "abfss", "gs"}


def open_ledger(
    root: str,
    writer: LedgerWriter,
    spark: "SparkSession | None",
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> Ledger:
    """The ledger under `root`; Spark's writer needs the session."""
    if resolve_writer(writer, root, spark) is LedgerWriter.DELTA_RS:
        return _by_delta_rs(root, timeouts)
    if spark is None:
        raise ValueError("The Spark writer needs a session")
    return _by_spark(root, spark)


def open_for_reading(root: str, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> Ledger:
    """The ledger under `root`, to read it: by delta-rs where that can, whoever writes it, else by a
    Spark session that is there. Raises `ConfigError` where there is none: to start one could take
    longer than a reader waits, and a session without a cluster's settings finds no catalog.
    """
    if can_delta_rs_reach(root):
        return _by_delta_rs(root, timeouts)
    pyspark = sys.modules.get("pyspark.sql")
    spark = None if pyspark is None else pyspark.SparkSession.getActiveSession()
    if spark is None:
        raise ConfigError(
            f"Only Spark can read the ledger at {root}, and no Spark session is there",
            advice="run it in a notebook or a job on the cluster, or query the tables there",
        )
    return _by_spark(root, spark)


def resolve_writer(
    writer: LedgerWriter, root: str, spark: "SparkSession | None" = None
) -> LedgerWriter:
    """The writer that `AUTO` stands for; another one stays as it is.

    Cloud storage is Spark's unless delta-rs is asked for: on S3 the two do not know of each other's
    commits, so it must not depend on a process's environment which of them writes.
    """
    if writer is not LedgerWriter.AUTO:
        return writer
    is_local = locations.local_folder(root) is not None and can_delta_rs_reach(root)
    has_other_files = spark is not None and _has_other_files(spark)
    return LedgerWriter.DELTA_RS if is_local and not has_other_files else LedgerWriter.SPARK


def require_delta_rs_root(root: str) -> None:
    """Raise `ConfigError` for a root that delta-rs cannot write."""
    if not can_delta_rs_reach(root):
        raise ConfigError(
            f"delta-rs cannot write a ledger at {root}",
            advice='set ledger.writer = "spark", or ledger.root to a folder or to s3:, abfss:, gs:',
        )


def can_delta_rs_reach(root: str) -> bool:
    """Whether delta-rs can read and write a ledger there."""
    # delta-rs takes a percent sign in a path for an escape, however it is written.
    is_known = locations.is_path(root) and locations.scheme(root) in _SCHEMES
    return is_known and "%" not in root


def _has_other_files(spark: "SparkSession") -> bool:
    """Whether a path without a scheme is not this machine's for this session."""
    if ".connect." in type(spark).__module__:
        return True
    files = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS")  # noqa: SLF001 - PySpark has no other way
    return not str(files).startswith("file:")


def _by_delta_rs(root: str, timeouts: Timeouts) -> Ledger:
    from duesweep.ledger.delta_rs import DeltaRsTables  # noqa: PLC0415 - slow to load

    return Ledger(DeltaRsTables(root, timeouts.silence_seconds))


def _by_spark(root: str, spark: "SparkSession") -> Ledger:
    from duesweep.ledger.spark import SparkTables  # noqa: PLC0415 - loads Spark

    return Ledger(SparkTables(spark, root))
