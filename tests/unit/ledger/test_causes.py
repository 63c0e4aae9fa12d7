"""The sentences for a ledger whose storage failed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from duesweep.core.errors import ExitCode, LedgerError
from duesweep.core.result import exit_code_of
from duesweep.ledger.base import LedgerPiece, LedgerTables
from duesweep.ledger.causes import cause_of
from duesweep.ledger.delta_rs import DeltaRsTables
from duesweep.ledger.durable import find_damage
from support.ledger_reader import piece_of

_TEXTS = json.loads((Path(__file__).parent / "delta_rs_errors.json").read_text(encoding="utf-8"))
_CAUSES = {
    "http not allowed open": ("URL scheme is not allowed", "AWS_ALLOW_HTTP"),
    "nobucket open": ("404 Not Found: NoSuchBucket: The specified bucket does not", "the bucket"),
    "nobucket create": ("404 Not Found: NoSuchBucket", "the bucket"),
    "denied open": ("403 Forbidden: AccessDenied: Access Denied", "the right to it"),
    "redirect open": ("incorrectly configured region", "AWS_REGION"),
    "no credentials open": ("there are no credentials", "AWS_ACCESS_KEY_ID"),
    "abfss": ("there are no credentials", "into the environment"),
    "gs": ("there are no credentials", "into the environment"),
    "torn commit open": ("Truncated record whilst reading string", "check ledger.root"),
    "missing middle commit open": ("between 00000000000000000000.json and 0", "check"),
    "empty data dataset": ("object was only 0 bytes long", "check ledger.root"),
    "empty data query": ("snappy.parquet: Requested range was invalid", "check ledger.root"),
    "missing data query": ("No such file or directory (os error 2)", "check ledger.root"),
    "torn data dataset": ("Parquet magic bytes not found in footer", "check ledger.root"),
    "garbled data query": ("Required field type_ is missing", "check ledger.root"),
    "torn checkpoint open": ("Invalid Parquet file. Corrupt footer", "check ledger.root"),
    "empty checkpoint open": ("didn't find any checkpoints", "check ledger.root"),
    "no hard links 38": ("Function not implemented (os error 38)", "hard links"),
    "no hard links 95": ("Operation not supported (os error 95)", "hard links"),
    "no hard links 1": ("Operation not permitted (os error 1)", "hard links"),
}
_PASSING = {
    "expired open": ("400 Bad Request: ExpiredToken", "renew the credentials"),
    "slow open": ("503 Service Unavailable: SlowDown", "check ledger.root"),
    "five create": ("500 Internal Server Error: InternalError", "check ledger.root"),
    "refused open": ("Connection refused (os error 111)", "check ledger.root"),
    "unresolved open": ("Name or service not known", "check ledger.root"),
    "silent open": ("operation timed out", "check ledger.root"),
}


@pytest.mark.parametrize("name", _TEXTS)
def test_deepest_cause_is_told_in_one_line_without_colours_and_addresses(name: str) -> None:
    expected, advice = (_CAUSES | _PASSING)[name]

    cause = cause_of(_TEXTS[name])

    assert expected in cause.text
    assert advice in cause.advice
    assert cause.may_pass is (name in _PASSING)
    assert not set("\x1b↳\n") & set(cause.text)
    assert "://" not in cause.text
    assert "<" not in cause.text


def test_table_with_more_than_delta_rs_can_is_spark_s() -> None:
    cause = cause_of("Reader features DeletionVectors are unsupported")

    assert 'set ledger.writer = "spark"' in cause.advice


Damage = Callable[[Path], Path]


def _commits(table: Path) -> list[Path]:
    return sorted((table / "_delta_log").glob("*.json"))


def _emptied(path: Path) -> Path:
    path.write_bytes(b"")
    return path


def _torn(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def _lost(path: Path) -> Path:
    path.unlink()
    return path


def _data(table: Path) -> Path:
    return sorted(table.glob("*.parquet"))[0]


def _checkpoint(table: Path) -> Path:
    DeltaTable(table).create_checkpoint()
    return next((table / "_delta_log").glob("*.parquet"))


_DAMAGES: dict[str, Damage] = {
    "empty newest commit": lambda table: _emptied(_commits(table)[-1]),
    "torn newest commit": lambda table: _torn(_commits(table)[-1]),
    "torn middle commit": lambda table: _torn(_commits(table)[1]),
    "missing data": lambda table: _lost(_data(table)),
    "empty data": lambda table: _emptied(_data(table)),
    "torn data": lambda table: _torn(_data(table)),
    "torn checkpoint": lambda table: _torn(_checkpoint(table)),
    "empty checkpoint": lambda table: _emptied(_checkpoint(table)),
}
_ACTS: dict[str, Callable[[LedgerTables], object]] = {
    "facts": lambda tables: tables.facts("retries"),
    "read": lambda tables: list(tables.read("retries", ["source"], [])),
    "ask": lambda tables: list(tables.ask("count_failing", {"retries": []})),
    "size": lambda tables: tables.size("retries"),
    "write": lambda tables: tables.write([_piece()]),
    "compact": lambda tables: tables.compact("retries"),
    "vacuum": lambda tables: tables.vacuum("retries", 8),
    "arrow": lambda tables: tables.arrow("retries"),  # type: ignore[attr-defined]
}
# These read no data file.
_OF_THE_LOG = {"facts", "size", "write", "vacuum"}


def _piece() -> LedgerPiece:
    return piece_of("retries", {"source": "a", "attempts": 1, "message_key": "1"})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with a table of three commits."""
    root = tmp_path_factory.mktemp("ledger")
    tables = DeltaRsTables(str(root))
    tables.create("retries", {})
    for _ in range(2):
        tables.write([_piece()])
    return root


@pytest.mark.parametrize("damage", _DAMAGES)
def test_damaged_file_is_named_whatever_meets_it(damage: str, whole: Path, tmp_path: Path) -> None:
    for act, of in _ACTS.items():
        root = shutil.copytree(whole, tmp_path / act)
        file = _DAMAGES[damage](root / "retries")
        if "data" in damage and act in _OF_THE_LOG:
            of(DeltaRsTables(str(root)))
            continue

        with pytest.raises(LedgerError) as caught:
            of(DeltaRsTables(str(root)))

        assert exit_code_of(caught.value) == ExitCode.CONFIGURATION, act
        assert str(file) in caught.value.text, act
        assert caught.value.text.startswith(str(root / "retries")), act
        assert "restore it from a backup" in str(caught.value), act


def test_whole_table_and_missing_table_have_no_damage(whole: Path, tmp_path: Path) -> None:
    assert find_damage(whole, ["retries"]) is None
    assert find_damage(tmp_path, ["retries"]) is None


@pytest.fixture
def strict(tmp_path: Path) -> DeltaRsTables:
    """A table to which another program added a column that has to have a value."""
    tables = DeltaRsTables(str(tmp_path))
    schema = pa.schema([("source", pa.string()), pa.field("tenant", pa.string(), nullable=False)])
    DeltaTable.create(tmp_path / "retries", schema)
    write_deltalake(
        tmp_path / "retries",
        pa.table({"source": ["b"], "tenant": ["t"]}, schema=schema),
        mode="append",
    )
    return tables


def test_column_that_refuses_the_rows_is_named(strict: DeltaRsTables) -> None:
    with pytest.raises(LedgerError, match="the column tenant is NOT NULL") as caught:
        strict.write([_piece()])

    assert exit_code_of(caught.value) == ExitCode.CONFIGURATION
    assert [row["source"] for row in strict.read("retries", ["source"], [])] == ["b"]


def test_rule_that_refuses_the_rows_is_named(tmp_path: Path) -> None:
    tables = DeltaRsTables(str(tmp_path))
    tables.create("retries", {})
    DeltaTable(tmp_path / "retries").alter.add_constraint({"no_a": "source <> 'a'"})

    with pytest.raises(LedgerError, match="the rule no_a is source != 'a'"):
        tables.write([_piece()])
