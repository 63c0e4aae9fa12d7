"""Who writes the ledger."""

from enum import StrEnum


class LedgerWriter(StrEnum):
    """Who writes the ledger's tables; `AUTO` is delta-rs wherever it can."""

    AUTO = "auto"
    DELTA_RS = "delta-rs"
    SPARK = "spark"
