"""Upkeep of the ledger by Spark, and what both writers read after it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import SparkSession

from duesweep.ledger.base import AppTransaction
from duesweep.ledger.delta_rs.rows import ArrowRows
from duesweep.ledger.delta_rs.tables import DeltaRsTables
from duesweep.ledger.ledger import Ledger
from duesweep.ledger.reading import Among
from duesweep.ledger.schemas import TOMBSTONES
from duesweep.ledger.spark.tables import SparkTables

_NOON = datetime(2026, 10, 25, 12, 0, 0, 5, tzinfo=UTC)
_HOUR = timedelta(hours=1)
SOURCE = 'it\'s "a\\b"'


def test_old_rows_and_small_and_old_files_are_removed(spark: SparkSession, tmp_path: Path) -> None:
    by_delta_rs = Ledger(DeltaRsTables(str(tmp_path / "ledger")))
    by_delta_rs.create()
    for number in range(4):
        row = {"source": SOURCE, "message_key": f"{number}"}
        row |= {"dispatched_at": _NOON + number * _HOUR}
        table = pa.Table.from_pylist([row, row | {"source": "b"}], TOMBSTONES)
        rows = ArrowRows(TOMBSTONES, lambda table=table: iter(table.to_batches()))
        by_delta_rs.append("tombstones", rows, AppTransaction(uuid4()))
    by_spark = Ledger(SparkTables(spark, by_delta_rs.root))
    upkeep = by_spark.tables.upkeep()

    by_spark.keep_from(SOURCE, _NOON + _HOUR)
    removed = upkeep.remove("tombstones", SOURCE, "dispatched_at", _NOON + _HOUR)
    compacted = upkeep.compact("tombstones")
    upkeep.vacuum("tombstones", 8)
    kept = len(list((tmp_path / "ledger" / "tombstones").glob("*.parquet")))
    upkeep.vacuum("tombstones", 0)

    assert (removed, compacted) == (1, 4)
    size = upkeep.size("tombstones")
    assert size is not None
    found = by_spark.tables.facts("tombstones").properties or {}
    assert (kept > 1, found["delta.deletedFileRetentionDuration"]) == (True, "interval 8 days")
    assert (size.files, size.bytes > 1_000) == (1, True)
    assert len(list((tmp_path / "ledger" / "tombstones").glob("*.parquet"))) == 1
    assert upkeep.size("changes") is None
    for other in (by_delta_rs, by_spark):
        assert other.kept_from(SOURCE) == _NOON + _HOUR
        mine = other.rows("tombstones", ["message_key"], Among("source", [SOURCE]))
        assert sorted(row["message_key"] for row in mine) == ["1", "2", "3"]
        assert len(list(other.rows("tombstones", ["message_key"]))) == 7
