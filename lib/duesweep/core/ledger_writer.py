"""Who writes the ledger."""

from enum import StrEnum


class LedgerWriter(StrEnum):
    """Who writes the ledger's tables."""

    SPARK = "spark"
    DELTA_RS = "delta-rs"
