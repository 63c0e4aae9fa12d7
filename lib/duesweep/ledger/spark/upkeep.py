"""Upkeep of the ledger's tables in a Spark session."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Row, SparkSession

from duesweep.drivers.spark import SPARK_ERRORS, is_conflict, is_transient, sentence
from duesweep.errors import LedgerError, raise_interruption
from duesweep.ledger import locations
from duesweep.ledger.spark.facts import is_absence
from duesweep.ledger.spark.quoting import literal
from duesweep.ledger.upkeep import TableSize

_TRIES = 5
_HOURS = 24
# Delta refuses fewer days than these, unless it is told not to check.
_CHECKED_DAYS = 7
_KEPT, _KEPT_BY_DEFAULT = "delta.deletedFileRetentionDuration", "interval 7 days"
# VACUUM would list a folder in 10,000 tasks.
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"


@dataclass(frozen=True, slots=True)
class SparkUpkeep:
    """See `LedgerUpkeep`."""

    spark: SparkSession
    root: str

    def size(self, name: str) -> TableSize | None:
        """How large the table is; None: there is none."""
        statement = f"DESCRIBE DETAIL {self._table(name)}"
        try:
            row = self.spark.sql(statement).first()
        except SPARK_ERRORS as error:
            if is_absence(error):
                return None
            raise self._failure(name, "read", error) from error
        assert row is not None
        # Of a path without a table, it says that this is no Delta table.
        return TableSize(row.numFiles, row.sizeInBytes) if row.format == "delta" else None

    def remove(self, name: str, source: str, column: str, before: datetime) -> int:
        """Remove a source's rows before an instant."""
        micros = round(before.astimezone(UTC).timestamp() * 1_000_000)
        condition = f"source = {literal(source)} AND `{column}` < timestamp_micros({micros})"
        text = f"DELETE FROM {self._table(name)} WHERE {condition}"  # noqa: S608 - a quoted table
        (row,) = self._run(name, "cut", text)
        return int(row[0])

    def compact(self, name: str) -> int:
        """Write small files together."""
        (row,) = self._run(name, "compacted", f"OPTIMIZE {self._table(name)}")
        return int(row.metrics.numFilesRemoved)

    def vacuum(self, name: str, days: int) -> None:
        """Delete files that no version of the last `days` needs. Delta removes expired log entries
        by itself, where it writes a checkpoint.
        """
        if days:
            self._keep_files(name, days)
        settings = {_LISTING_TASKS: "4"}
        if days < _CHECKED_DAYS:
            settings[_CHECK] = "false"
        with self._set(settings):
            self._run(name, "cleaned", f"VACUUM {self._table(name)} RETAIN {days * _HOURS} HOURS")

    def _keep_files(self, name: str, days: int) -> None:
        """Delta's VACUUM goes by a property of the table, and ignores what RETAIN says, unless that
        is 0.
        """
        wanted = f"interval {days} days"
        rows = self._run(name, "read", f"SHOW TBLPROPERTIES {self._table(name)}")
        if {row["key"]: row["value"] for row in rows}.get(_KEPT, _KEPT_BY_DEFAULT) != wanted:
            change = f"ALTER TABLE {self._table(name)} SET TBLPROPERTIES ('{_KEPT}' = '{wanted}')"
            self._run(name, "cleaned", change)

    @contextmanager
    def _set(self, settings: Mapping[str, str]) -> Iterator[None]:
        """Change the session's settings in the block, where its platform allows that."""
        before: dict[str, str | None] = {}
        with suppress(*SPARK_ERRORS):
            for key, value in settings.items():
                before[key] = self.spark.conf.get(key, None)
                self.spark.conf.set(key, value)
        try:
            yield
        finally:
            for key, old in before.items():
                with suppress(*SPARK_ERRORS):
                    self.spark.conf.unset(key) if old is None else self.spark.conf.set(key, old)

    def _table(self, name: str) -> str:
        return locations.table_name(self.root, name)

    def _run(self, name: str, what: str, statement: str) -> list[Row]:
        for tries_left in reversed(range(_TRIES)):
            try:
                return self.spark.sql(statement).collect()
            except SPARK_ERRORS as error:
                if tries_left and is_conflict(error):
                    continue
                raise self._failure(name, what, error) from error
        raise AssertionError("unreachable")

    def _failure(self, name: str, what: str, error: Any) -> LedgerError:
        raise_interruption(error)
        return LedgerError(
            f"{self._table(name)} could not be {what}: {sentence(error)}",
            advice="check ledger.root and the right to write there",
            transient=is_transient(error),
        )
