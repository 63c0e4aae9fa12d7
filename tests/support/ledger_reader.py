"""A ledger in a test: its rows, the expected rows, and rows to append."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
from chispa import assert_df_equality
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import DataFrame, Row, SparkSession

from duesweep.ledger.base import LedgerPiece, Rows
from duesweep.ledger.rows import RETRIES, SCHEMAS


def comments_of(table: Path) -> Mapping[str, object]:
    """The comments that a table's columns have for its readers, and under "" its own."""
    found = DeltaTable(table)
    columns = {field.name: field.metadata.get("comment") for field in found.schema().fields}
    return {"": found.metadata().description, **columns}


@dataclass(frozen=True)
class LedgerReader:
    """The ledger under `root`; `session` makes or returns the Spark session for DataFrames."""

    root: Path
    session: Callable[[], SparkSession] | None = None

    @property
    def spark(self) -> SparkSession:
        assert self.session is not None
        return self.session()

    def table(self, name: str) -> DataFrame:
        return self.spark.read.format("delta").load(str(self.root / name))

    def count(self, name: str) -> int:
        return self._read(name).num_rows

    def rows(self, name: str) -> list[Row]:
        """By delta-rs, which takes a hundredth of Spark's time."""
        return [Row(**row) for row in self._read(name).to_pylist(maps_as_pydicts="strict")]

    def _read(self, name: str) -> pa.Table:
        # Not by `to_pyarrow_table`: after it Python was seen to abort at its end.
        found = QueryBuilder().register(name, DeltaTable(self.root / name))
        return pa.table(found.execute(f"SELECT * FROM {name}").read_all())

    def assert_holds(
        self, name: str, rows: Sequence[Mapping[str, object]], *, but_for: Collection[str] = ()
    ) -> None:
        """A table has the documented columns and these rows, no others. Columns that a row does not
        name are null; columns `but_for` are not compared.
        """
        schema = SCHEMAS[name]
        assert all(row.keys() <= set(schema.names) for row in rows)
        expected_df = self.spark.createDataFrame(pa.Table.from_pylist(list(rows), schema))
        key = {"sweeps": ["sweep_id"], "changes": ["message_key", "change"]}.get(
            name, ["message_key"]
        )
        assert_df_equality(
            self.table(name),
            expected_df,
            transforms=[lambda rows_df: rows_df.sort(*key)],
            ignore_columns=list(but_for),
            # Each column has a comment.
            ignore_metadata=True,
        )

    def commits(self, name: str) -> int:
        log = self.root / name / "_delta_log"
        return len(list(log.glob("*.json"))) if log.exists() else 0


def piece_of(
    name: str, *rows: Mapping[str, object], sweep_id: UUID | None = None, version: int = 1
) -> LedgerPiece:
    table = pa.Table.from_pylist([dict(row) for row in rows], SCHEMAS[name])
    return LedgerPiece(name, Rows(table.to_batches), sweep_id or uuid4(), version)


def retry_rows(counters: Mapping[str, Any], source: str) -> list[dict[str, Any]]:
    """The rows of `retries` that copy a store's retry counters, which are given by key."""
    copied = set(RETRIES.names) - {"source", "message_key"}
    return [
        {"source": source, "message_key": key, **{name: getattr(row, name) for name in copied}}
        for key, row in counters.items()
    ]
