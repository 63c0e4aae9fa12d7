"""Which writer a ledger has."""

from typing import TYPE_CHECKING

from duesweep.core.ledger_writer import LedgerWriter
from duesweep.errors import ConfigError
from duesweep.ledger import locations

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Where its commits are safe beside another writer's: https://delta-io.github.io/delta-rs/
_SCHEMES = {"", "file", "s3", "abfss", "gs"}


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
