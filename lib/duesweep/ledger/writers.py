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
    """The writer that `AUTO` stands for; another one stays as it is."""
    if writer is not LedgerWriter.AUTO:
        return writer
    is_able = _can_delta_rs_write(root) and not _has_other_files(spark)
    return LedgerWriter.DELTA_RS if is_able else LedgerWriter.SPARK


def require_delta_rs_root(root: str) -> None:
    """Raise `ConfigError` for a root that delta-rs cannot write."""
    if not _can_delta_rs_write(root):
        raise ConfigError(
            f"delta-rs cannot write a ledger at {root}",
            advice='set ledger.writer = "spark", or ledger.root to a folder or to s3:, abfss:, gs:',
        )


def _can_delta_rs_write(root: str) -> bool:
    # delta-rs takes a percent sign in a path for an escape, however it is written.
    is_known = locations.is_path(root) and locations.scheme(root) in _SCHEMES
    return is_known and "%" not in root


def _has_other_files(spark: "SparkSession | None") -> bool:
    """Whether a path without a scheme is not this machine's for this session."""
    if spark is None:
        return False
    is_remote = ".connect." in type(spark).__module__
    files = spark.conf.get("spark.hadoop.fs.defaultFS", None)
    return is_remote or not (files or "file:").startswith("file:")
