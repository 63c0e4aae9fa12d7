"""Who writes the ledger."""

from enum import StrEnum


class LedgerWriter(StrEnum):
    """Who writes the ledger's tables. `AUTO`: delta-rs for a local folder, else Spark."""

    AUTO = "auto"
    SPARK = "spark"
    DELTA_RS = "delta-rs"
