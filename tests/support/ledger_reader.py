"""What a test reads of a ledger."""

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession


@dataclass(frozen=True)
class LedgerReader:
    """The ledger under `root`."""

    spark: SparkSession
    root: Path

    def table(self, name: str) -> DataFrame:
        return self.spark.read.format("delta").load(str(self.root / name))

    def rows(self, name: str) -> list[Row]:
        return self.table(name).collect()

    def commits(self, name: str) -> int:
        log = self.root / name / "_delta_log"
        return len(list(log.glob("*.json"))) if log.exists() else 0
