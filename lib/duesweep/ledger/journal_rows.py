"""Reads a sealed sweep from the journal as DataFrames in the ledger's schemas.

Dispatched messages come as Arrow through the driver, batch by batch: 1,000 messages take 50 kB, and
no Python worker has to start to decode them. Exhausted messages, with their bodies, come over JDBC
and never through the driver's Python.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from duesweep import tombstone
from duesweep.ledger.schemas import ERRORS, RETRIES, SWEEPS, TOMBSTONES
from duesweep.stores.journal import Journal, JournalBatch, JournalExtent, SweepSummary

# How many bytes one JDBC read may hold in memory.
_FETCH_BYTES = 64_000_000
_ROWS_PER_FILE = 100_000
_INSTANTS = {"due", "dispatched_at", "first_failed_at", "last_failed_at", "next_attempt_at"}


@dataclass(frozen=True, slots=True)
class JournalRows:
    """The rows of one sealed sweep. Each read returns the same pieces."""

    spark: SparkSession
    journal: Journal
    sweep_id: UUID

    def dispatched_dfs(self) -> Iterator[DataFrame]:
        """`tombstones` of dispatched messages, in pieces that fit into the driver's memory."""
        for batches in self.journal.batches(self.sweep_id):
            rows = _decode_batches(batches, self.journal.source)
            rows_df = self.spark.createDataFrame(rows, TOMBSTONES)
            yield rows_df.coalesce(max(1, rows.num_rows // _ROWS_PER_FILE))

    def exhausted_df(self, exhausted: JournalExtent) -> DataFrame:
        """`tombstones` of exhausted messages."""
        rows_df = self._exhausted_rows_df(exhausted).withColumn("outcome", F.lit("exhausted"))
        return rows_df.select(*(_convert_instant(name) for name in TOMBSTONES.names))

    def errors_df(self, exhausted: JournalExtent) -> DataFrame:
        """`errors`: the exhausted messages, with headers and body."""
        rows_df = self._exhausted_rows_df(exhausted).withColumns(
            {
                "headers": F.from_json("headers", "map<string, string>"),
                "last_failed_at": F.col("dispatched_at"),
                "next_attempt_at": F.lit(None).cast("bigint"),
            }
        )
        return rows_df.select(*(_convert_instant(name) for name in ERRORS.names))

    def retries_df(self) -> DataFrame:
        """`retries`: the source's messages that failed and are still in the store."""
        rows_df = self._read(self.journal.retries_query(), fetch_rows=1_000)
        return rows_df.select(*(_convert_instant(name) for name in RETRIES.names))

    def _exhausted_rows_df(self, exhausted: JournalExtent) -> DataFrame:
        fetch_rows = max(1, min(1_000, _FETCH_BYTES // max(1, exhausted.longest_bytes)))
        query = self.journal.exhausted_query(self.sweep_id)
        return self._read(query, fetch_rows=fetch_rows)

    def _read(self, query: str, *, fetch_rows: int) -> DataFrame:
        source = self.journal.jdbc()
        fetch = {"fetchsize": str(fetch_rows)}
        return self.spark.read.jdbc(
            source.url, f"({query}) AS journal", properties=source.properties | fetch
        ).withColumn("source", F.lit(self.journal.source))


def sweeps_df(spark: SparkSession, summary: SweepSummary) -> DataFrame:
    """The row of `sweeps`."""
    table = pa.table({name: [getattr(summary, name)] for name in SWEEPS.names})
    return spark.createDataFrame(table, SWEEPS)


def _decode_batches(batches: Sequence[JournalBatch], source: str) -> pa.Table:
    return pa.concat_tables(_decode_batch(batch, source) for batch in batches)


def _decode_batch(batch: JournalBatch, source: str) -> pa.Table:
    rows = pa.Table.from_batches([tombstone.decode(batch.outcomes)])
    same = {"sweep_id": str(batch.sweep_id), "source": source}
    if "outcome" not in rows.column_names:
        # Written by a version that could not defer messages.
        same["outcome"] = "dispatched"
    for name, value in same.items():
        rows = rows.append_column(name, pa.repeat(pa.scalar(value), rows.num_rows))
    return rows.select(TOMBSTONES.names)


def _convert_instant(name: str) -> Column:
    return F.timestamp_micros(name).alias(name) if name in _INSTANTS else F.col(name)
