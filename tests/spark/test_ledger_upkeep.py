"""Upkeep of the ledger by Spark, and what both writers read after it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from duesweep.ledger.base import Among
from duesweep.ledger.delta_rs import DeltaRsTables
from duesweep.ledger.ledger import Ledger
from duesweep.ledger.spark import SparkTables
from support.ledger_reader import piece_of

_NOON = datetime(2026, 10, 25, 12, 0, 0, 5, tzinfo=UTC)
_HOUR = timedelta(hours=1)
SOURCE = 'it\'s "a\\b"'


def test_old_rows_and_small_and_old_files_are_removed(spark: SparkSession, tmp_path: Path) -> None:
    by_delta_rs = Ledger(DeltaRsTables(str(tmp_path / "ledger")))
    by_delta_rs.create()
    for number in range(4):
        row = {"source": SOURCE, "message_key": f"{number}"}
        row |= {"dispatched_at": _NOON + number * _HOUR}
        by_delta_rs.tables.append(
            "tombstones", [piece_of("tombstones", row, row | {"source": "b"})]
        )
    by_spark = Ledger(SparkTables(spark, by_delta_rs.root))
    tables = by_spark.tables

    by_spark.keep_from(SOURCE, _NOON + _HOUR)
    removed = tables.remove("tombstones", SOURCE, "dispatched_at", _NOON + _HOUR)
    compacted = tables.compact("tombstones")
    tables.vacuum("tombstones", 8)
    kept = len(list((tmp_path / "ledger" / "tombstones").glob("*.parquet")))
    tables.vacuum("tombstones", 0)

    assert (removed, compacted) == (1, 4)
    size = tables.size("tombstones")
    assert size is not None
    found = by_spark.tables.facts("tombstones").properties or {}
    assert (kept > 1, found["delta.deletedFileRetentionDuration"]) == (True, "interval 8 days")
    assert (size.files, size.bytes > 1_000) == (1, True)
    assert len(list((tmp_path / "ledger" / "tombstones").glob("*.parquet"))) == 1
    assert tables.size("changes") is None
    for other in (by_delta_rs, by_spark):
        assert other.kept_from(SOURCE) == _NOON + _HOUR
        mine = other.rows("tombstones", ["message_key"], Among("source", [SOURCE]))
        assert sorted(row["message_key"] for row in mine) == ["1", "2", "3"]
        assert len(list(other.rows("tombstones", ["message_key"]))) == 7
