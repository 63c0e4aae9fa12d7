"""Rows of a ledger read by Spark: the same as without Java."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from duesweep.core.errors import ConfigError
from duesweep.core.message import ENCLOSED_MESSAGE_TYPES
from duesweep.ledger.base import COUNT, ENCLOSED_TYPES, Among, Between
from duesweep.ledger.delta_rs import DeltaRsTables
from duesweep.ledger.ledger import Ledger
from duesweep.ledger.spark import SparkTables
from support.ledger_reader import piece_of

# In an hour that a clock of Berlin shows twice.
_FAILED = datetime(2026, 10, 25, 0, 30, 0, 5, tzinfo=UTC)
_HOUR = timedelta(hours=1)


def test_spark_reads_the_same_rows_as_delta_rs(spark: SparkSession, tmp_path: Path) -> None:
    by_delta_rs = Ledger(DeltaRsTables(str(tmp_path / "ledger")))
    by_delta_rs.create()
    rows = [
        {
            "source": "a'b",
            "message_key": f"{number}",
            "last_failed_at": _FAILED + number * _HOUR,
            "headers": {ENCLOSED_MESSAGE_TYPES: "Sales.Cancel", "x": None} if number else None,
            "body": [b"\xff\x00", b"", None][number],
        }
        for number in range(3)
    ]
    by_delta_rs.tables.append("errors", [piece_of("errors", *rows)])
    by_spark = Ledger(SparkTables(spark, by_delta_rs.root))
    columns = ("message_key", "last_failed_at", "headers", "body", ENCLOSED_TYPES)

    for conditions, keys in (
        ((), {"0", "1", "2"}),
        ((Among("source", ["a'b", "x"]), Between("last_failed_at", _FAILED + _HOUR)), {"1", "2"}),
        ((Between("last_failed_at", None, _FAILED + _HOUR),), {"0"}),
        ((Among("message_key", []),), set()),
    ):
        found = [
            sorted(ledger.rows("errors", columns, *conditions), key=lambda row: row["message_key"])
            for ledger in (by_spark, by_delta_rs)
        ]
        assert found[0] == found[1]
        assert {row["message_key"] for row in found[0]} == keys
    assert list(by_spark.rows("changes", ["message_key"])) == []
    for ledger in (by_spark, by_delta_rs):
        twice = list(ledger.count("errors", ["source"], least=2))
        assert twice == [{"source": "a'b", COUNT: 3}]
        assert list(ledger.count("errors", ["message_key"], least=2)) == []
        late = Between("last_failed_at", _FAILED + _HOUR)
        assert list(ledger.count("errors", ["source"], late)) == [{"source": "a'b", COUNT: 2}]
        assert list(ledger.count("changes", ["source"])) == []
    many = Among("message_key", [f"{number}" for number in range(1, 1_500)])
    assert {row["message_key"] for row in by_spark.rows("errors", ["message_key"], many)} == {
        "1",
        "2",
    }


def test_spark_marks_a_ledger_with_its_format_and_refuses_a_newer_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    by_spark = Ledger(SparkTables(spark, str(tmp_path / "ledger")))
    by_spark.create()
    by_delta_rs = Ledger(DeltaRsTables(by_spark.root))
    found = by_delta_rs.tables.facts("tombstones").properties
    assert found is not None
    assert found["duesweep.format"] == "duesweep format 1 (0.1.0 or newer)"
    assert by_spark.read() == by_delta_rs.read()

    by_spark.tables.set_properties("tombstones", {"duesweep.format": "duesweep format 2"})

    for ledger in (by_spark, by_delta_rs):
        with pytest.raises(ConfigError, match=r"has format 2, .* the version that made it"):
            ledger.read()
