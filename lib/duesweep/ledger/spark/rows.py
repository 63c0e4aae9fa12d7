"""A sealed sweep or command of the journal as DataFrames.

What was dispatched comes as Arrow, batch by batch, through the driver, and no Python worker has to
start to decode it. What is exhausted comes over JDBC, bodies and all, and never touches the
driver's Python.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from duesweep.core.change import ChangeKind
from duesweep.drivers.spark import SPARK_ERRORS, is_transient, sentence
from duesweep.errors import LedgerError, raise_interruption
from duesweep.ledger.dispatched import dispatched_tables
from duesweep.ledger.schemas import CHANGES, ERRORS, RETRIES, SWEEPS, TOMBSTONES
from duesweep.ledger.spark.types import SPARK_SCHEMAS
from duesweep.stores.journal import ExhaustedPiece, Journal, SweepSummary
from duesweep.stores.steering import CommandJournal

# What one JDBC read may hold at a time.
_FETCH_BYTES = 64_000_000
_ROWS_PER_FILE = 100_000
_INSTANTS = {
    *("due", "dispatched_at", "first_failed_at", "last_failed_at", "next_attempt_at"),
    *("changed_at", "due_before", "due_after"),
}


@dataclass(frozen=True, slots=True)
class SparkSweepRows:
    """The rows of one sealed sweep or command. Read again, they come in the same pieces.

    `reads_first`: JDBC reads end before their rows are handed out, for a ledger that only one
    process may write at a time.
    """

    spark: SparkSession
    journal: Journal
    sweep_id: UUID
    reads_first: bool

    def dispatched(self) -> Iterator[DataFrame]:
        """`tombstones` of what was dispatched, in pieces that fit the driver's memory."""
        for rows in dispatched_tables(self.journal, self.sweep_id):
            with self._ledger_errors():
                rows_df = self.spark.createDataFrame(rows, SPARK_SCHEMAS["tombstones"])
                files_df = rows_df.coalesce(max(1, rows.num_rows // _ROWS_PER_FILE))
            yield files_df

    def exhausted(self, piece: ExhaustedPiece) -> tuple[DataFrame, DataFrame]:
        """A piece of what was exhausted: for `tombstones`, and whole for `errors`."""
        with self._ledger_errors():
            query = self.journal.exhausted_query(self.sweep_id, piece)
            rows_df = self._read(query, fetch_rows=_fetch_rows(piece))
            tombstones_df = rows_df.withColumn("outcome", F.lit("exhausted"))
            errors_df = rows_df.withColumns(
                {
                    "headers": F.from_json("headers", "map<string, string>"),
                    "next_attempt_at": F.lit(None).cast("bigint"),
                }
            )
            return (
                tombstones_df.select(*(_convert_instant(name) for name in TOMBSTONES.names)),
                errors_df.select(*(_convert_instant(name) for name in ERRORS.names)),
            )

    def changes(self, piece: ExhaustedPiece) -> tuple[DataFrame, DataFrame]:
        """A piece of what a command changed: for `tombstones`, and for `changes`."""
        assert isinstance(self.journal, CommandJournal)
        with self._ledger_errors():
            query = self.journal.changes_query(self.sweep_id, piece)
            rows_df = self._read(query, fetch_rows=_fetch_rows(piece))
            tombstones_df = rows_df.where(F.col("change") == ChangeKind.CANCELLED.value)
            tombstones_df = tombstones_df.withColumns(
                {
                    "outcome": F.col("change"),
                    "due": F.col("due_before"),
                    "dispatched_at": F.col("changed_at"),
                    "lateness_ms": F.lit(None).cast("bigint"),
                }
            )
            headers = F.from_json("headers", "map<string, string>")
            changes_df = rows_df.withColumn("headers", headers)
            return (
                tombstones_df.select(*(_convert_instant(name) for name in TOMBSTONES.names)),
                changes_df.select(*(_convert_instant(name) for name in CHANGES.names)),
            )

    def retries(self) -> DataFrame:
        """`retries`: the source's messages that failed and are still in the store."""
        with self._ledger_errors():
            rows_df = self._read(self.journal.retries_query(), fetch_rows=1_000)
            return rows_df.select(*(_convert_instant(name) for name in RETRIES.names))

    def sweep(self, summary: SweepSummary) -> DataFrame:
        """`sweeps`: the one row."""
        table = pa.table({name: [getattr(summary, name)] for name in SWEEPS.names})
        with self._ledger_errors():
            return self.spark.createDataFrame(table, SPARK_SCHEMAS["sweeps"])

    def _read(self, query: str, *, fetch_rows: int) -> DataFrame:
        source = self.journal.jdbc()
        fetch = {"fetchsize": str(fetch_rows)}
        read_df = self.spark.read.jdbc(
            source.url, f"({query}) AS journal", properties=source.properties | fetch
        )
        rows_df = read_df.localCheckpoint() if self.reads_first else read_df
        return rows_df.withColumn("source", F.lit(self.journal.source))

    @contextmanager
    def _ledger_errors(self) -> Iterator[None]:
        try:
            yield
        except SPARK_ERRORS as error:
            raise_interruption(error)
            raise LedgerError(
                f"Sweep {self.sweep_id} could not be brought to the ledger: {sentence(error)}; the "
                "journal keeps it, and the next sweep tries again",
                transient=is_transient(error),
            ) from error


def _fetch_rows(piece: ExhaustedPiece) -> int:
    return max(1, min(1_000, _FETCH_BYTES // max(1, piece.longest_bytes)))


def _convert_instant(name: str) -> Column:
    return F.timestamp_micros(name).alias(name) if name in _INSTANTS else F.col(name)
