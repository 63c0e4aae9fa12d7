"""The ledger's writer by delta-rs, and its rows, read without a JVM."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableOptimizer

from duesweep.core.account import SweepSummary
from duesweep.core.change import ChangeKind, Command, CommandName, UnsettledCommand
from duesweep.core.errors import LedgerError
from duesweep.core.exhausted import ErrorFilter, ErrorId
from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID, Delivered
from duesweep.core.world import Patience, micros
from duesweep.ledger import delta_rs, query
from duesweep.ledger import ledger as ledger_module
from duesweep.ledger.base import (
    ENCLOSED_TYPES,
    Among,
    Between,
    Condition,
    LedgerPiece,
    Named,
)
from duesweep.ledger.delta_rs import DeltaRsTables
from duesweep.ledger.ledger import Ledger
from duesweep.ledger.rows import CHANGES, ERRORS, TOMBSTONES, comments, exhausted
from duesweep.operations.exhausted import ExhaustedMessages
from duesweep.stores.journal import Piece
from duesweep.stores.tombstone import Tombstones
from duesweep_testing.builders import DUE, delayed_row, message
from support.ledger_reader import LedgerReader, comments_of, piece_of


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(DeltaRsTables(str(tmp_path / "a ledger's #? ü")))
    ledger.create()
    return ledger


def _piece(source: str, *keys: str, sweep_id: UUID | None = None, version: int = 1) -> LedgerPiece:
    rows = [{"source": source, "attempts": 1, "message_key": key} for key in keys]
    return piece_of("retries", *rows, sweep_id=sweep_id, version=version)


def _keys(ledger: Ledger) -> list[tuple[str, str]]:
    rows = LedgerReader(Path(ledger.root)).rows("retries")
    return sorted((row.source, row.message_key) for row in rows)


def test_ledger_that_was_created_is_found(ledger: Ledger) -> None:
    identity = ledger.read()

    assert isinstance(identity.ledger_id, UUID)
    assert (identity.missing, identity.stray) == ((), ())
    assert ledger.create() == identity.ledger_id


def test_tables_and_columns_have_their_comments_also_after_a_write(ledger: Ledger) -> None:
    ledger.tables.write([_piece("sales", "1")])
    ledger.tables.write([_piece("sales", "2")._replace(replaces="sales")])

    for name in ("retries", "tombstones", "errors", "sweeps"):
        assert comments_of(Path(ledger.root) / name) == comments(name)


def test_of_several_pieces_those_that_are_missing_are_appended(ledger: Ledger) -> None:
    mine, other = uuid4(), uuid4()
    pieces = [
        _piece("a", "1", sweep_id=mine, version=1),
        _piece("a", "2", sweep_id=mine, version=2),
        _piece("b", "3", sweep_id=other),
        _piece("a", "4", sweep_id=mine, version=3),
    ]
    before = DeltaTable(f"{ledger.root}/retries").version()

    for count in (1, 3, 4, 4):
        ledger.tables.write(pieces[:count])

    assert _keys(ledger) == [("a", "1"), ("a", "2"), ("a", "4"), ("b", "3")]
    table = DeltaTable(f"{ledger.root}/retries")
    assert table.version() == before + 3
    assert [table.transaction_version(str(one)) for one in (mine, other)] == [3, 1]


def test_all_pieces_of_a_sweep_are_written_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the pieces were too large to share a commit.
    monkeypatch.setattr(ledger_module, "BYTES_TOGETHER", 1)
    sweep_id, rows = uuid4(), [delayed_row() for _ in range(3)]
    delivered = [
        Tombstones.of([Delivered(message(row), "q")], "Sales").encode([0], micros(DUE))
        for row in rows
    ]
    journal: Any = SimpleNamespace(source="a", batches=lambda _: ([one] for one in delivered))
    for _ in range(2):
        summary = _summary(sweep_id)
        ledger.write_sweep(journal, summary, [], Patience(60), retries_changed=False)

    reader = LedgerReader(Path(ledger.root))
    assert sorted(row.message_key for row in reader.rows("tombstones")) == sorted(
        row.key for row in rows
    )
    assert [row.sweep_id for row in reader.rows("sweeps")] == [str(sweep_id)]


def _summary(sweep_id: UUID) -> SweepSummary:
    values: dict[str, Any] = dict.fromkeys((field.name for field in fields(SweepSummary)), 0)
    texts = dict.fromkeys(("source", "outcome", "reason", "engine"), "a")
    times = dict.fromkeys(("start", "end", "horizon"), DUE)
    return SweepSummary(**values | texts | times | {"sweep_id": str(sweep_id)})


_LARGE = 5_000_000


class _LargeBodies:
    """A journal of four messages with large bodies, a piece each. Notes what Arrow held when a
    piece was read.
    """

    source = "a"

    def __init__(self) -> None:
        self.held: list[int] = []

    def batches(self, _: UUID) -> list[list[bytes]]:
        return []

    def pieces(self, sweep_id: UUID, *, command: bool) -> list[Piece]:
        return [Piece(sweep_id, command, number, number) for number in range(4)]

    def piece_rows(self, piece: Piece) -> list[SimpleNamespace]:
        self.held.append(pa.total_allocated_bytes())
        row = SimpleNamespace(**dict.fromkeys([*TOMBSTONES.names, *ERRORS.names, *CHANGES.names]))
        row.message_key, row.body, row.change = str(piece.first_id), b"x" * _LARGE, "cancelled"
        return [row]


@pytest.mark.parametrize("of_command", [False, True], ids=["sweep", "command"])
def test_bodies_of_one_piece_are_in_memory_at_a_time(ledger: Ledger, *, of_command: bool) -> None:
    journal: Any = _LargeBodies()
    sweep_id, patience = uuid4(), Patience(60)
    before = pa.total_allocated_bytes()

    if of_command:
        command = UnsettledCommand(Command(CommandName.CANCEL, "a", "b"), attempts_changed=False)
        ledger.write_command(journal, sweep_id, command, patience)
    else:
        pieces = journal.pieces(sweep_id, command=False)
        ledger.write_sweep(journal, _summary(sweep_id), pieces, patience, retries_changed=False)

    assert len(journal.held) == 4
    assert max(journal.held) - before < _LARGE
    table = "changes" if of_command else "errors"
    rows = LedgerReader(Path(ledger.root)).rows(table)
    assert sorted(row.message_key for row in rows) == ["0", "1", "2", "3"]
    assert {len(row.body) for row in rows} == {_LARGE}


def test_race_for_a_transaction_is_won_once(ledger: Ledger) -> None:
    sweep_id = uuid4()

    with ThreadPoolExecutor(8) as pool:
        races = [
            pool.submit(ledger.tables.write, [_piece("a", "1", sweep_id=sweep_id)])
            for _ in range(8)
        ]
        for race in races:
            race.result(timeout=60)

    assert _keys(ledger) == [("a", "1")]


def test_rows_of_one_source_are_replaced(ledger: Ledger) -> None:
    mine, other = "mine's", "mine"
    ledger.tables.write([_piece(mine, "1", "2"), _piece(other, "3")])

    ledger.tables.write([_piece(mine, "2")._replace(replaces=mine)])
    assert _keys(ledger) == [(other, "3"), (mine, "2")]

    ledger.tables.write([_piece(mine)._replace(replaces=mine)])
    assert _keys(ledger) == [(other, "3")]


@pytest.mark.parametrize("depth", [1, 900, *range(960, 1_000), 2_000])
def test_headers_of_any_depth_are_text_or_nothing(depth: int) -> None:
    nested = '{"k":' + "[" * depth + "]" * depth + "}"

    row = SimpleNamespace(**dict.fromkeys([*TOMBSTONES.names, *ERRORS.names]))
    row.headers = nested
    journal: Any = SimpleNamespace(source="a", piece_rows=lambda _: [row])

    _, errors = exhausted(journal, Piece(uuid4(), command=False, first_id=1, last_id=1))

    (batch,) = errors.batches()
    (pairs,) = batch.column("headers").to_pylist()
    assert pairs is None or pairs == [("k", "[" * depth + "]" * depth)]


def test_table_that_delta_rs_does_not_understand_leads_to_spark(ledger: Ledger) -> None:
    log = sorted((Path(ledger.root) / "retries" / "_delta_log").glob("*.json"))[0]
    text = log.read_text().replace('"minReaderVersion":1', '"minReaderVersion":9')
    log.write_text(text)

    with pytest.raises(LedgerError) as caught:
        ledger.tables.write([_piece("a", "1")])

    assert "ledger.writer" in caught.value.advice


def test_panic_of_delta_rs_is_an_error_of_the_ledger(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    panic = type("PanicException", (BaseException,), {})

    def write(*_: object, **__: object) -> None:
        raise panic("called `Option::unwrap()` on a `None` value")

    monkeypatch.setattr(delta_rs, "write_deltalake", write)
    with pytest.raises(LedgerError, match=r"retries could not be written.*unwrap"):
        ledger.tables.write([_piece("a", "1")])


def test_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "errors").write_text("a file where a table should be")

    with pytest.raises(LedgerError, match="errors"):
        Ledger(DeltaRsTables(str(tmp_path / "ledger"))).create()


def test_small_files_become_one_and_no_row_is_lost_or_doubled(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_rs, "_COMPACT_EVERY", 10)
    sweep_ids = [uuid4() for _ in range(25)]

    for sweep_id in sweep_ids * 2:
        piece = piece_of("sweeps", {"outcome": "done"}, sweep_id=sweep_id)
        ledger.tables.write([piece])

    table = DeltaTable(f"{ledger.root}/sweeps")
    assert table.count() == len(sweep_ids)
    assert len(table.file_uris()) < 12
    assert all(table.transaction_version(str(sweep_id)) == 1 for sweep_id in sweep_ids)


_PANIC = type("PanicException", (BaseException,), {})


@pytest.mark.parametrize(
    "error",
    [CommitFailedError("x"), OSError("full"), ValueError("x"), pa.ArrowInvalid("x"), _PANIC("x")],
    ids=lambda error: type(error).__name__,
)
def test_compaction_that_fails_is_no_failure_of_the_sweep(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def compact(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(delta_rs, "_COMPACT_EVERY", 1)
    monkeypatch.setattr(TableOptimizer, "compact", compact)

    ledger.tables.write([piece_of("sweeps", {"outcome": "done"})])

    assert DeltaTable(f"{ledger.root}/sweeps").count() == 1


_NINE = datetime(2026, 11, 23, 9, tzinfo=UTC)
_HOUR = timedelta(hours=1)


def _append(ledger: Ledger, *rows: dict[str, Any]) -> None:
    ledger.tables.write([piece_of("errors", *rows)])


def _keys_that(ledger: Ledger, *conditions: Condition) -> list[str]:
    return sorted(row["message_key"] for row in ledger.rows("errors", ["message_key"], *conditions))


def _asked_for(ledger: Ledger, *conditions: Condition) -> list[str]:
    tables = {"errors": conditions, "changes": []}
    rows = ledger.ask("last_errors", tables, hidden="", most=1_000)
    return sorted(row["message_key"] for row in rows)


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

    assert _keys_that(ledger) == ["0", "1", "2", "3", "b"]
    assert _keys_that(ledger, Among("source", ["a"])) == ["0", "1", "2", "3"]
    mine = Among("source", ["a", "c"])
    # The start is included, the end is not.
    span = Between("last_failed_at", _NINE + _HOUR, _NINE + 3 * _HOUR)
    assert _keys_that(ledger, mine, span) == ["1", "2"]
    assert _keys_that(ledger, mine, Between("last_failed_at", end=_NINE + _HOUR)) == ["0"]
    assert _keys_that(ledger, mine, Between("last_failed_at")) == ["0", "1", "2", "3"]
    assert _keys_that(ledger, Among("source", [])) == []


def test_missing_table_has_no_rows(tmp_path: Path) -> None:
    nowhere = Ledger(DeltaRsTables(str(tmp_path / "nowhere")))

    assert list(nowhere.rows("errors", ["message_key"])) == []


def test_files_that_delta_rs_has_rewritten_are_read_by_conditions(ledger: Ledger) -> None:
    headers = {ENCLOSED_MESSAGE_TYPES: "Sales.Cancel"}
    rows = [
        {"source": source, "message_key": key, "headers": headers, "last_failed_at": _NINE}
        for source, key in (("a", "1"), ("a", "2"), ("b", "3"))
    ]
    _append(ledger, *rows)
    DeltaTable(Path(ledger.root) / "errors").delete("message_key = '2'")

    assert _keys_that(ledger, Among("source", ["a"]), Between("last_failed_at", _NINE)) == ["1"]
    found = list(ledger.rows("errors", [ENCLOSED_TYPES], Among("message_key", ["3"])))
    assert found == [{ENCLOSED_TYPES: "Sales.Cancel"}]


def test_equal_rows_are_counted(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if the table were too large to be grouped at once.
    monkeypatch.setattr(query, "_ROWS_PER_PART", 3)
    for source in ("it's", "b"):
        _append(ledger, *({"source": source, "message_key": f"{n}"} for n in (1, 1, 2, 13)))

    found = ledger.ask("find_doubled_errors", {"errors": [Among("source", ["it's"])]})
    twice = list(ledger.ask("find_doubled_errors", {"errors": []}))

    assert [(row["message_key"], row["errors"]) for row in found] == [("1", 2)]
    assert sorted((row["message_key"], row["errors"]) for row in twice) == [
        ("1", 4),
        ("13", 2),
        ("2", 2),
    ]
    assert list(ledger.ask("find_cancelled", {"changes": []}, again=1, command="")) == []


def test_very_many_values_are_one_literal(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "_MOST_LITERALS", 2)
    keys = ["", "it's", "\x01", "\x02a", "{most}", "\\"]
    _append(ledger, *({"source": "s", "message_key": key, "message_id": "m"} for key in keys))
    _append(ledger, {"source": "s", "message_key": "other", "message_id": None})

    assert _asked_for(ledger, Among("message_key", keys)) == sorted(keys)
    assert _asked_for(ledger, Among("message_key", [*keys[2:], None])) == sorted(keys[2:])
    assert _asked_for(ledger, Among("message_id", ["a", "b", "c", None])) == ["other"]
    assert _asked_for(ledger, Named([*keys[1:], "m"])) == sorted(keys)
    assert _asked_for(ledger, Named(keys[:2]), Among("source", ["a", "b", "s"])) == ["", "it's"]


def test_name_is_a_key_or_a_message_id(ledger: Ledger) -> None:
    for key, message_id in (("1", "a"), ("2", "it's"), ("it's", "b"), ("3", None)):
        _append(ledger, {"source": "s", "message_key": key, "message_id": message_id})

    assert _asked_for(ledger, Named(["it's", "1"])) == ["1", "2", "it's"]
    assert _keys_that(ledger, Named(["it's", "1"])) == ["1", "2", "it's"]
    assert _keys_that(ledger, Named([])) == []
    assert _keys_that(ledger, Among("message_id", ["a", None])) == ["1", "3"]


def test_errors_alike_are_counted_once_and_shown_by_the_last_failure(ledger: Ledger) -> None:
    rows = [
        {
            "source": "s",
            "sweep_id": f"s{number}",
            "message_key": f"k{number}",
            "last_failed_at": DUE + timedelta(hours=number % 3),
            "error_class": "x",
        }
        for number in range(4)
    ]
    ledger.tables.write([piece_of("errors", *rows)])

    (alike,) = ExhaustedMessages(ledger, "s").counted(ErrorFilter())

    assert alike.id == ErrorId("s2", "k2")
    assert (alike.messages, alike.change) == (4, None)
    assert (alike.failed_from, alike.last_failed_at) == (DUE, DUE + timedelta(hours=2))


def test_last_change_of_an_error_is_its_fate(ledger: Ledger) -> None:
    error = {"source": "s", "sweep_id": "s1", "message_key": "k", "last_failed_at": DUE}
    ledger.tables.write([piece_of("errors", error | {"error_class": "x"})])
    ledger.tables.create("changes", {})
    for hours, change in ((1, "replayed"), (2, "discarded"), (0, "replayed")):
        row = {"source": "s", "of": "s1", "message_key": "k", "change": change}
        changed = row | {"changed_at": DUE + timedelta(hours=hours)}
        ledger.tables.write([piece_of("changes", changed)])

    messages = ExhaustedMessages(ledger, "s")

    assert [one.change for one in messages.counted(ErrorFilter())] == [ChangeKind.DISCARDED]
    assert messages.counted(ErrorFilter(), with_discarded=False) == []


def test_errors_are_asked_for_in_any_year(ledger: Ledger) -> None:
    row = {"source": "s", "sweep_id": "s1", "error_class": "x"}
    failed = [datetime(1600, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)]
    rows = [row | {"message_key": str(at.year), "last_failed_at": at} for at in failed]
    ledger.tables.write([piece_of("errors", *rows)])
    messages = ExhaustedMessages(ledger, "s")

    def counted(chosen: ErrorFilter) -> list[str]:
        return [one.key for one in messages.counted(chosen)]

    assert counted(ErrorFilter(until=failed[1])) == ["1600"]
    assert counted(ErrorFilter(since=failed[1])) == ["9999"]
    assert counted(ErrorFilter(until=failed[0])) == []
