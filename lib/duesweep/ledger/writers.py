"""Which writer a ledger has."""

from duesweep.core.ledger_writer import LedgerWriter
from duesweep.errors import ConfigError
from duesweep.ledger import locations

# What delta-rs writes with safe commits: https://delta-io.github.io/delta-rs/
_DELTA_RS_SCHEMES = {"", "file", "s3", "abfss", "gs"}


def choose_writer(root: str, asked: LedgerWriter, *, paths_are_local: bool) -> LedgerWriter:
    """The writer for a root. `paths_are_local`: a path without a scheme is of this machine, for
    Spark as well. Raises `ConfigError` where delta-rs is asked for and cannot.
    """
    # delta-rs takes a percent sign in a path for an escape, however it is written.
    can = (
        locations.is_path(root) and locations.scheme(root) in _DELTA_RS_SCHEMES and "%" not in root
    )
    if asked is LedgerWriter.DELTA_RS and not can:
        raise ConfigError(
            f"delta-rs cannot write a ledger at {root}",
            advice='set ledger.writer = "spark", or ledger.root to a folder or to s3:, abfss:, gs:',
        )
    if asked is not LedgerWriter.AUTO:
        return asked
    is_elsewhere = not locations.scheme(root) and not paths_are_local
    return LedgerWriter.DELTA_RS if can and not is_elsewhere else LedgerWriter.SPARK
