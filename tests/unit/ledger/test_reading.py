"""Rows of a ledger, read without a JVM."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID
from duesweep.errors import LedgerError
from duesweep.ledger.base import AppTransaction
from duesweep.ledger.delta_rs.rows import ArrowRows
from duesweep.ledger.delta_rs.tables import DeltaRsTables
from duesweep.ledger.ledger import Ledger
from duesweep.ledger.reading import ENCLOSED_TYPES, Among, Between
from duesweep.ledger.schemas import ERRORS

_NINE = datetime(2026, 11, 23, 9, tzinfo=UTC)
_HOUR = timedelta(hours=1)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(DeltaRsTables(str(tmp_path / "a ledger's #? ü")))
    ledger.create()
    return ledger


def _append(ledger: Ledger, *rows: dict[str, Any]) -> None:
    table = pa.Table.from_pylist(list(rows), ERRORS)
    errors = ArrowRows(ERRORS, lambda: iter(table.to_batches()))
    ledger.append("errors", errors, AppTransaction(uuid4()))


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
