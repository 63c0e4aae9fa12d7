"""Rows of a ledger, read without a JVM."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from duesweep.core.errors import LedgerError
from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID
from duesweep.ledger import delta_rs
from duesweep.ledger.base import COUNT, ENCLOSED_TYPES, Among, Between
from duesweep.ledger.delta_rs import DeltaRsTables
from duesweep.ledger.ledger import Ledger
from support.ledger_reader import piece_of

_NINE = datetime(2026, 11, 23, 9, tzinfo=UTC)
_HOUR = timedelta(hours=1)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(DeltaRsTables(str(tmp_path / "a ledger's #? ü")))
    ledger.create()
    return ledger


def _append(ledger: Ledger, *rows: dict[str, Any]) -> None:
    ledger.tables.append("errors", [piece_of("errors", *rows)])


def _keys(ledger: Ledger, *conditions: Among | Between) -> list[str]:
    return sorted(row["message_key"] for row in ledger.rows("errors", ["message_key"], *conditions))


def test_rows_have_the_columns_that_were_asked_for(ledger: Ledger) -> None:
    headers = {ENCLOSED_MESSAGE_TYPES: "Sales.Cancel, Sales", MESSAGE_ID: None}
    _append(
        ledger,
        {"message_key": "1", "headers": headers, "body": b"\xff\x00", "last_failed_at": _NINE},
    )

    (row,) = ledger.rows("errors", ["headers", "body", "last_failed_at", ENCLOSED_TYPES, "stack"])

    assert row == {
        "headers": headers,
        "body": b"\xff\x00",
        "last_failed_at": _NINE,
        ENCLOSED_TYPES: "Sales.Cancel, Sales",
        "stack": None,
    }


def test_row_without_headers_has_no_types_and_no_body_is_not_an_empty_one(ledger: Ledger) -> None:
    _append(ledger, {"message_key": "1", "headers": None, "body": None})
    _append(ledger, {"message_key": "2", "headers": {}, "body": b""})

    rows = list(ledger.rows("errors", ["message_key", ENCLOSED_TYPES, "body"]))

    found = sorted((row["message_key"], row[ENCLOSED_TYPES], row["body"]) for row in rows)
    assert found == [("1", None, None), ("2", None, b"")]


def test_all_conditions_have_to_hold(ledger: Ledger) -> None:
    for number in range(4):
        failed_at = _NINE + number * _HOUR
        _append(ledger, {"source": "a", "message_key": f"{number}", "last_failed_at": failed_at})
    _append(ledger, {"source": "b", "message_key": "b", "last_failed_at": _NINE})

    assert _keys(ledger) == ["0", "1", "2", "3", "b"]
    assert _keys(ledger, Among("source", ["a"])) == ["0", "1", "2", "3"]
    mine = Among("source", ["a", "c"])
    # The start is included, the end is not.
    span = Between("last_failed_at", _NINE + _HOUR, _NINE + 3 * _HOUR)
    assert _keys(ledger, mine, span) == ["1", "2"]
    assert _keys(ledger, mine, Between("last_failed_at", end=_NINE + _HOUR)) == ["0"]
    assert _keys(ledger, mine, Between("last_failed_at")) == ["0", "1", "2", "3"]
    assert _keys(ledger, Among("source", [])) == []


def test_missing_table_has_no_rows(tmp_path: Path) -> None:
    nowhere = Ledger(DeltaRsTables(str(tmp_path / "nowhere")))

    assert list(nowhere.rows("errors", ["message_key"])) == []


def test_lost_file_is_an_error_of_the_ledger(ledger: Ledger) -> None:
    _append(ledger, {"message_key": "1"})
    (file,) = (Path(ledger.root) / "errors").rglob("*.parquet")
    file.unlink()

    with pytest.raises(LedgerError, match="errors is unreadable"):
        list(ledger.rows("errors", ["message_key"]))


def test_files_that_delta_rs_has_rewritten_are_read_by_conditions(ledger: Ledger) -> None:
    headers = {ENCLOSED_MESSAGE_TYPES: "Sales.Cancel"}
    rows = [
        {"source": source, "message_key": key, "headers": headers, "last_failed_at": _NINE}
        for source, key in (("a", "1"), ("a", "2"), ("b", "3"))
    ]
    _append(ledger, *rows)
    DeltaTable(Path(ledger.root) / "errors").delete("message_key = '2'")

    assert _keys(ledger, Among("source", ["a"]), Between("last_failed_at", _NINE)) == ["1"]
    found = list(ledger.rows("errors", [ENCLOSED_TYPES], Among("message_key", ["3"])))
    assert found == [{ENCLOSED_TYPES: "Sales.Cancel"}]


def test_equal_rows_are_counted(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if the table were too large for one pass.
    monkeypatch.setattr(delta_rs, "_ROWS_PER_PASS", 3)
    for source in ("it's", "b"):
        _append(ledger, *({"source": source, "message_key": f"{n}"} for n in (1, 1, 2, 13)))

    found = list(ledger.count("errors", ["message_key", "source"], Among("source", ["it's"])))
    twice = list(ledger.count("errors", ["message_key", "attempts"], least=2))

    assert sorted((row["message_key"], row[COUNT]) for row in found) == [
        ("1", 2),
        ("13", 1),
        ("2", 1),
    ]
    assert sorted((row["message_key"], row["attempts"], row[COUNT]) for row in twice) == [
        ("1", None, 4),
        ("13", None, 2),
        ("2", None, 2),
    ]
    assert list(ledger.count("changes", ["source"])) == []
