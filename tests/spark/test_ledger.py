"""The ledger by both writers: all its columns, all readers, and its upkeep."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import deltalake
import duckdb
import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from duesweep import Duesweep
from duesweep.core.change import ChangeKind, MessageFilter
from duesweep.core.errors import ConfigError, LedgerError
from duesweep.core.exhausted import ErrorFilter, ErrorRow
from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID, Delivered
from duesweep.core.world import instant_of, micros
from duesweep.ledger.base import (
    ENCLOSED_TYPES,
    TABLES,
    Among,
    Between,
    LedgerPiece,
    Named,
    Rows,
)
from duesweep.ledger.delta_rs import DeltaRsTables
from duesweep.ledger.ledger import Ledger, open_ledger
from duesweep.ledger.rows import SCHEMAS, SWEEPS, comments, dispatched
from duesweep.ledger.spark import SPARK_SCHEMAS, TIMESTAMP_TYPE, SparkTables
from duesweep.operations.command import Changed, given_by
from duesweep.operations.exhausted import ExhaustedMessages
from duesweep.stores.journal import Journal
from duesweep.stores.tombstone import Tombstones
from duesweep.sweep.in_process import InProcessEngine
from duesweep.sweep.spark import SparkEngine
from duesweep_testing.builders import BODY, MESSAGE_TYPE, DelayedRow, Due, delayed_row, message
from duesweep_testing.memory_ledger import MemoryTables
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader, comments_of, piece_of, retry_rows
from support.sweeps import run_sweep

FIRST_FAILED = datetime(2026, 11, 20, 8, 0, 0, 123_456, tzinfo=UTC)
NOT_FOUND = "duesweep.errors.QueueNotFoundError"


@pytest.mark.on_spark
@pytest.mark.parametrize("writer", ["delta-rs", "spark"])
def test_delivered_failed_and_exhausted_messages_are_all_that_the_ledger_holds(
    writer: str, spark: SparkSession, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    due = endpoint.due_in(-60)
    delivered, failed, exhausted = (
        delayed_row(destination, due=due) for destination in ("Billing", "Nowhere", "Nowhere")
    )
    endpoint.load([delivered, failed, exhausted])
    context = endpoint.context(retry__max_attempts=2, ledger__writer=writer)
    source = context.store.source
    endpoint.execute(
        f"INSERT INTO {endpoint.own_table('attempts')}"
        " VALUES ($1, $2, NULL, NULL, 1, $3, $3, $3, 'x', 'x')",
        source,
        exhausted.key,
        FIRST_FAILED,
    )

    engine = SparkEngine(spark) if writer == "spark" else InProcessEngine()
    summary = run_sweep(context, engine)

    sweep_row = {name: getattr(summary, name) for name in SWEEPS.names}
    assert sweep_row | {"dispatched": 1, "failed": 1, "exhausted": 1, "found": 3} == sweep_row
    ledger.assert_holds("sweeps", [sweep_row])
    same = {"sweep_id": summary.sweep_id, "source": source, "message_type": MESSAGE_TYPE}
    same |= {"due": due, "body_bytes": len(BODY)}
    left = [
        {
            **_named(delivered, "Billing"),
            "queue": '"public"."Billing"',
            "attempts": 1,
            "outcome": "dispatched",
        },
        {**_named(exhausted, "Nowhere"), "attempts": 2, "outcome": "exhausted"},
    ]
    # When they were dispatched is the server's affair; how late that was is asserted below.
    ledger.assert_holds(
        "tombstones", [row | same for row in left], but_for=["dispatched_at", "lateness_ms"]
    )
    [retry] = retry_rows(endpoint.attempts(), source)
    expected = {**_named(failed, "Nowhere"), "attempts": 1, "error_class": NOT_FOUND}
    assert retry | expected == retry
    assert retry["first_failed_at"] == retry["last_failed_at"] < retry["next_attempt_at"]
    ledger.assert_holds("retries", [retry])
    ledger.assert_holds(
        "errors",
        [
            {
                **_named(exhausted, "Nowhere"),
                "sweep_id": summary.sweep_id,
                "source": source,
                "attempts": 2,
                "first_failed_at": FIRST_FAILED,
                "error_class": NOT_FOUND,
                "error_text": retry["error_text"],
                "headers": json.loads(exhausted.headers),
                "headers_text": exhausted.headers,
                "body": BODY,
            }
        ],
        but_for=["last_failed_at", "stack"],
    )
    _assert_instants_agree(ledger)


def _named(row: DelayedRow, destination: str) -> dict[str, Any]:
    headers = json.loads(row.headers)
    return {
        "message_key": row.key,
        "message_id": headers[MESSAGE_ID],
        "destination": destination,
    }


def _assert_instants_agree(ledger: LedgerReader) -> None:
    """Lateness is from Due to the dispatch, and the last failure is when a message was given up."""
    tombstones_df = ledger.table("tombstones")
    late_ms = "(unix_micros(dispatched_at) - unix_micros(due)) / 1000"
    assert tombstones_df.filter(f"abs(lateness_ms - {late_ms}) >= 1").collect() == []
    exhausted_df = tombstones_df.filter("outcome = 'exhausted'")
    assert_df_equality(
        ledger.table("errors").select("message_key", "last_failed_at"),
        exhausted_df.select("message_key", F.col("dispatched_at").alias("last_failed_at")),
        ignore_metadata=True,
    )


@pytest.mark.on_spark
@pytest.mark.parametrize("writer", ["delta-rs", "spark"])
def test_commands_are_in_the_ledger_with_all_that_they_changed(
    writer: str, spark: SparkSession, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    (row,) = endpoint.load([delayed_row(due=datetime(2027, 1, 2, 3, 4, 5, 678901, tzinfo=UTC))])
    (other,) = endpoint.load([delayed_row(due=datetime(2027, 1, 2, tzinfo=UTC), body=None)])
    session = spark if writer == "spark" else None
    swept = Duesweep(endpoint.config(ledger__writer=writer), session)

    def command_of(changed: Changed) -> str:
        assert (changed.changed, changed.ledger_error) == (1, None)
        return str(changed.command_id)

    keys = MessageFilter(keys=(row.key,)), MessageFilter(keys=(other.key,))
    cancelled = command_of(swept.cancel(keys[0], reason="why"))
    moved = command_of(swept.reschedule(keys[1], by=timedelta(hours=1), reason="why"))
    again = swept.choose_cancelled(command=cancelled)
    restored = command_of(swept.restore(again, reason="why"))

    key = next(key for key in endpoint.waiting() if key != other.key)
    headers = json.loads(row.headers)
    same = {
        "source": swept.source,
        "given_by": given_by(),
        "reason": "why",
        "message_type": "Sales.Messages.CancelOrder",
        "destination": "Billing",
    }
    whole = {"headers": headers, "headers_text": row.headers, "body": bytearray(BODY)}
    instants = {one.change: one for one in ledger.rows("changes")}
    cancelled_at, moved_row = instants["cancelled"], instants["rescheduled"]
    ledger.assert_holds(
        "changes",
        [
            {
                **same,
                **whole,
                "sweep_id": cancelled,
                "command": "cancel",
                "change": "cancelled",
                "message_key": row.key,
                "message_id": headers["NServiceBus.MessageId"],
                "due_before": cancelled_at.due_before,
                "body_bytes": len(BODY),
            },
            {
                **same,
                "sweep_id": moved,
                "command": "reschedule",
                "change": "rescheduled",
                "message_key": other.key,
                "message_id": json.loads(other.headers)["NServiceBus.MessageId"],
                "due_before": moved_row.due_before,
                "due_after": moved_row.due_before + timedelta(hours=1),
                "body_bytes": 0,
            },
            {
                **same,
                "sweep_id": restored,
                "command": "restore",
                "change": "restored",
                "message_key": row.key,
                "message_id": headers["NServiceBus.MessageId"],
                "due_after": cancelled_at.due_before,
                "of": cancelled,
                "new_key": key,
                "body_bytes": len(BODY),
            },
        ],
        but_for=["changed_at"],
    )
    ledger.assert_holds(
        "tombstones",
        [
            {
                "sweep_id": cancelled,
                "source": swept.source,
                "message_key": row.key,
                "message_id": headers["NServiceBus.MessageId"],
                "message_type": "Sales.Messages.CancelOrder",
                "destination": "Billing",
                "due": cancelled_at.due_before,
                "dispatched_at": cancelled_at.changed_at,
                "attempts": 0,
                "outcome": "cancelled",
                "body_bytes": len(BODY),
            }
        ],
    )
    assert cancelled_at.due_before.microsecond == 678901


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
    by_delta_rs.tables.write([piece_of("errors", *rows)])
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
    many = Among("message_key", [f"{number}" for number in range(1, 1_500)])
    for one in (many, Named(["1", "2", "x"])):
        found_keys = {row["message_key"] for row in by_spark.rows("errors", ["message_key"], one)}
        assert found_keys == {"1", "2"}


@pytest.mark.on_spark
def test_files_without_rows_of_a_span_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    tables = SparkTables(spark, str(tmp_path / "ledger"))
    tables.create("errors", {"a": "b"})
    files = set[str]()
    for number in range(3):
        tables.write([piece_of("errors", {"last_failed_at": _FAILED + number * _HOUR})])
        [new] = set(deltalake.DeltaTable(tmp_path / "ledger/errors").file_uris()) - files
        files.add(new)
        # A reader that opens it fails.
        if number != 1:
            Path(new).unlink()

    span = Between("last_failed_at", _FAILED + _HOUR, _FAILED + 1.5 * _HOUR)
    found = list(tables.read("errors", ["last_failed_at"], [span]))

    assert found == [{"last_failed_at": _FAILED + _HOUR}]


@pytest.mark.on_spark
def test_tables_have_instants_also_if_a_timestamp_of_the_session_has_no_zone(
    spark: SparkSession, tmp_path: Path
) -> None:
    name, tables = "spark.sql.timestampType", SparkTables(spark, str(tmp_path / "ledger"))
    spark.conf.set(name, "TIMESTAMP_NTZ")
    try:
        for table, expected in SPARK_SCHEMAS.items():
            tables.create(table, {"a": "b"})
            made = spark.read.table(tables.table(table)).schema
            assert made.simpleString() == expected.simpleString()
        tables.write([piece_of("errors", {"last_failed_at": _FAILED})])
        found = list(
            tables.read("errors", ["last_failed_at"], [Between("last_failed_at", _FAILED)])
        )
    finally:
        spark.conf.unset(name)

    assert found == [{"last_failed_at": _FAILED}]


@pytest.mark.on_spark
@pytest.mark.parametrize(
    "changes",
    [
        ["ADD CONSTRAINT theirs CHECK (attempts IS NULL)"],
        ["SET TBLPROPERTIES ('delta.appendOnly' = 'true')"],
        [
            "SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
            "ALTER COLUMN attempts TYPE bigint",
        ],
    ],
    ids=["a rule", "append only", "another type"],
)
def test_table_that_was_changed_and_refuses_rows_is_told_as_such(
    changes: list[str], spark: SparkSession, tmp_path: Path
) -> None:
    tables = SparkTables(spark, str(tmp_path / "ledger"))
    tables.create("retries", {"a": "b"})
    tables.write([piece_of("retries", {"source": "Sales"})])
    for change in changes:
        spark.sql(f"ALTER TABLE {tables.table('retries')} {change}")

    piece = piece_of("retries", {"source": "Sales", "attempts": 1})
    with pytest.raises(LedgerError) as caught:
        tables.write([piece._replace(replaces="Sales")])

    assert "find out who changed the table" in str(caught.value)


def _last(
    messages: ExhaustedMessages, chosen: ErrorFilter, *, with_discarded: bool = True
) -> list[ErrorRow]:
    """All of them, the last failure first."""
    counted = messages.counted(chosen, with_discarded=with_discarded)
    return [*messages.last(chosen, counted, 100, with_discarded=with_discarded)]


def test_errors_are_counted_and_listed_alike_by_all_writers(
    spark: SparkSession, tmp_path: Path
) -> None:
    memory, by_delta_rs = MemoryTables(), DeltaRsTables(str(tmp_path / "ledger"))
    writers = [
        ExhaustedMessages(Ledger(tables), "a'b")
        for tables in (memory, by_delta_rs, SparkTables(spark, by_delta_rs.root))
    ]
    empty = [list(messages.counted(ErrorFilter())) for messages in writers]
    errors = [
        {
            "source": "other" if number == 6 else "a'b",
            "sweep_id": f"s{number % 2}",
            "message_key": f"k{number}",
            "message_id": f"m{number}",
            "destination": None if number == 4 else "Billing",
            "attempts": 5,
            "first_failed_at": _FAILED,
            # The last ones fail at the same moment.
            "last_failed_at": _FAILED + min(number, 2) * _HOUR,
            "error_class": "duesweep.errors.QueueNotFoundError",
            "error_text": "It is not there",
            "headers": {ENCLOSED_MESSAGE_TYPES: "Sales.Cancel, Sales", "x": None} if number else {},
        }
        for number in range(7)
    ]
    for tables in (memory, by_delta_rs):
        tables.create("errors", {})
        tables.write([piece_of("errors", *errors)])
    open_ones = [_last(messages, ErrorFilter()) for messages in writers]
    changes = [
        {
            "source": "a'b",
            "of": f"s{number % 2}",
            "message_key": f"k{number}",
            "change": change,
            "changed_at": _FAILED + after * _HOUR,
        }
        for number, change, after in (
            (1, "discarded", 3),
            (1, "replayed", 4),
            (2, "discarded", 3),
            # Another error of the same key, and a change that is no fate.
            (3, "cancelled", 5),
        )
    ]
    for tables in (memory, by_delta_rs):
        tables.create("changes", {})
        tables.write([piece_of("changes", *changes)])

    counted = [messages.counted(ErrorFilter()) for messages in writers]
    listed = [_last(messages, ErrorFilter()) for messages in writers]
    shown = [_last(messages, ErrorFilter(), with_discarded=False) for messages in writers]
    later = ErrorFilter(since=_FAILED + _HOUR, destination="Bill*")
    some = [
        (sum(each.messages for each in messages.counted(later)), len(_last(messages, later)))
        for messages in writers
    ]
    unknown = ErrorFilter(group=listed[0][2].group)
    of_group = [[one.message_id for one in _last(each, unknown)] for each in writers]
    named = ErrorFilter(ids=("k1", "m3", "m6"))
    of_names = [[one.message_id for one in _last(each, named)] for each in writers]

    (file,) = (Path(by_delta_rs.root) / "changes").glob("*.parquet")
    file.unlink()
    for messages in writers[1:]:
        with pytest.raises(LedgerError, match=r"changes`? is unreadable: .* is missing"):
            list(messages.counted(ErrorFilter()))

    assert empty == [[], [], []]
    assert [[one.change for one in each] for each in open_ones] == [[None] * 6] * 3
    assert listed[0] == listed[1] == listed[2]
    assert [(one.message_id, one.change) for one in listed[0]] == [
        # In the order of sweep and key, if they failed at the same moment.
        ("m5", None),
        ("m3", None),
        ("m4", None),
        ("m2", ChangeKind.DISCARDED),
        ("m1", ChangeKind.REPLAYED),
        ("m0", None),
    ]
    assert [len(each) for each in shown] == [5, 5, 5]
    assert some == [(4, 4)] * 3
    assert (of_group, of_names) == ([["m4"]] * 3, [["m3", "m1"]] * 3)
    counts = {"m5": 2, "m4": 1, "m2": 1, "m1": 1, "m0": 1}
    for each in counted:
        assert {one.message_id: one.messages for one in each} == counts
        assert {one._replace(messages=1) for one in each} == {
            one._replace(changed_at=None) for one in listed[0] if one.message_id in counts
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
    for name in ("retries", "tombstones", "errors", "sweeps"):
        assert comments_of(tmp_path / "ledger" / name) == comments(name)

    by_spark.tables.set_properties("tombstones", {"duesweep.format": "duesweep format 2"})

    for ledger in (by_spark, by_delta_rs):
        with pytest.raises(ConfigError, match=r"has format 2, .* the version that made it"):
            ledger.read()


_NOON = datetime(2026, 10, 25, 12, 0, 0, 5, tzinfo=UTC)
SOURCE = 'it\'s "a\\b"'


def test_old_rows_and_small_and_old_files_are_removed(spark: SparkSession, tmp_path: Path) -> None:
    by_delta_rs = Ledger(DeltaRsTables(str(tmp_path / "ledger")))
    by_delta_rs.create()
    for number in range(4):
        row = {"source": SOURCE, "message_key": f"{number}"}
        row |= {"dispatched_at": _NOON + number * _HOUR}
        by_delta_rs.tables.write([piece_of("tombstones", row, row | {"source": "b"})])
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
        assert other.kept_from() == {SOURCE: _NOON + _HOUR}
        mine = other.rows("tombstones", ["message_key"], Among("source", [SOURCE]))
        assert sorted(row["message_key"] for row in mine) == ["1", "2", "3"]
        assert len(list(other.rows("tombstones", ["message_key"]))) == 7


_YEAR_1 = datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
_YEAR_9999 = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
_DUES: list[Due] = [
    *("-infinity", _YEAR_1, datetime(1677, 1, 1, tzinfo=UTC)),
    datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=UTC),
]
_Values = list[tuple[int | None, ...]]
# 4713 BC, year 10000, and the last year that the journal can hold.
_OUTSIDE = [-210_863_520_000_000_000, 253_402_300_800_000_000, 9_089_332_588_800_000_000]


@pytest.fixture(params=["ours", pytest.param("Spark's own", marks=pytest.mark.long)])
def session(request: pytest.FixtureRequest, spark: SparkSession) -> SparkSession:
    """A session as duesweep starts it, and one that others prepared."""
    if request.param != "ours":
        spark.conf.set(TIMESTAMP_TYPE[0], "INT96")
        # Of Spark 3.
        spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "EXCEPTION")
    return spark


@pytest.mark.on_spark
@pytest.mark.parametrize("writer", ["delta-rs", "spark"])
def test_dues_of_all_times_are_the_same_for_all_readers(
    writer: str, session: SparkSession, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    for destination in ("Billing", "Nowhere"):
        endpoint.load(delayed_row(destination, due=due) for due in _DUES)
    context = endpoint.context(retry__max_attempts=1, ledger__writer=writer)
    engine = SparkEngine(session) if writer == "spark" else InProcessEngine()
    run_sweep(context, engine)
    endpoint.delay("Nowhere")
    run_sweep(endpoint, engine, ledger__writer=writer)
    _append_what_nobody_waits_for(open_ledger(context.ledger_root, context.ledger_writer, session))

    dues = [value[0] for value in _by_spark(ledger, "tombstones", ["due"])]
    expected_dues = [None if isinstance(due, str) else micros(due) for due in _DUES] * 2
    assert sorted(map(str, dues)) == sorted(map(str, [*expected_dues, micros(_YEAR_9999)]))
    for name in TABLES:
        columns = [f.name for f in SCHEMAS[name] if pa.types.is_timestamp(f.type)]
        expected = _by_spark(ledger, name, columns)
        assert expected
        assert _by_deltalake(ledger.root / name, columns) == expected
        assert _by_duckdb(ledger.root / name, columns) == expected


@dataclass(frozen=True, slots=True)
class _OneBatch:
    """A journal of one message that is due in year 9999; its Due is as no sweep would dispatch."""

    source = "late"

    def batches(self, _: UUID) -> Iterator[list[bytes]]:
        delivered = [Delivered(message(delayed_row(due=_YEAR_9999)), "Billing")]
        yield [Tombstones.of(delivered, "Sales").encode([0], 0)]


def _append_what_nobody_waits_for(ledger: Ledger) -> None:
    sweep_id = uuid4()
    for rows in dispatched(cast("Journal", _OneBatch()), sweep_id):
        ledger.tables.write([LedgerPiece("tombstones", rows, sweep_id)])


def _by_spark(ledger: LedgerReader, name: str, columns: list[str]) -> _Values:
    micros = [F.unix_micros(column).alias(column) for column in columns]
    return _sorted([tuple(row) for row in ledger.table(name).select(*micros).collect()])


def _by_deltalake(path: Path, columns: list[str]) -> _Values:
    table = deltalake.DeltaTable(path).to_pyarrow_table(columns=columns)
    values = [table[column].cast("int64").to_pylist() for column in columns]
    return _sorted(list(zip(*values, strict=True)))


def _by_duckdb(path: Path, columns: list[str]) -> _Values:
    files = deltalake.DeltaTable(path).file_uris()
    listed = ", ".join(f'epoch_us("{column}")' for column in columns)
    return _sorted(duckdb.sql(f"SELECT {listed} FROM read_parquet({files!r})").fetchall())


def _sorted(values: _Values) -> _Values:
    return sorted(values, key=lambda row: [(value is None, value or 0) for value in row])


@pytest.mark.on_spark
def test_trial_of_which_only_executors_have_the_file_needs_no_backup(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = type(spark).sql

    def run_elsewhere(session: SparkSession, statement: str, **values: Any) -> DataFrame:
        done_df = run(session, statement, **values)
        for file in tmp_path.rglob("*.parquet"):
            file.unlink()
        return done_df

    monkeypatch.setattr(type(spark), "sql", run_elsewhere)
    with pytest.raises(LedgerError) as caught:
        SparkTables(spark, str(tmp_path)).try_out("duesweep_trial")

    assert "does not exist" in caught.value.text
    assert "all executors have to see a folder" in str(caught.value)
    assert "backup" not in str(caught.value)


@pytest.mark.on_spark
def test_ledger_that_may_not_be_read_is_not_taken_for_one_that_is_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    # Also root may not look into it.
    closed.symlink_to(closed)

    with pytest.raises(LedgerError, match="is unreadable"):
        SparkTables(spark, str(closed)).facts("tombstones")


@pytest.mark.on_spark
def test_both_writers_read_instants_outside_of_pythons_years(
    spark: SparkSession, tmp_path: Path
) -> None:
    exact = [*_OUTSIDE, 0, None]
    rows = [{"message_key": str(n), "due_before": due} for n, due in enumerate(exact)]
    batch = pa.RecordBatch.from_pylist([], SCHEMAS["changes"])
    columns = [
        pa.array([row.get(name) for row in rows], pa.int64()).cast(kind)
        if name == "due_before"
        else pa.array([row.get(name) for row in rows], kind)
        for name, kind in zip(batch.schema.names, batch.schema.types, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMAS["changes"])
    kept = [instant_of(us) for us in _OUTSIDE] + [instant_of(0), None]
    for name, mine, other in (
        ("by delta-rs", DeltaRsTables, SparkTables),
        ("by spark", SparkTables, DeltaRsTables),
    ):
        root = str(tmp_path / name.replace(" ", "-"))
        of = {DeltaRsTables: DeltaRsTables(root), SparkTables: SparkTables(spark, root)}
        of[mine].create("changes", {"a": "b"})
        of[mine].write([LedgerPiece("changes", Rows(lambda: [batch]), uuid4())])
        for tables in (of[mine], of[other]):
            read = sorted(
                tables.read("changes", ["message_key", "due_before", "due_before_us"], []),
                key=lambda row: row["message_key"],
            )
            assert [row["due_before_us"] for row in read] == exact
            assert [row["due_before"] for row in read] == kept


@pytest.mark.on_spark
def test_readers_follow_a_writer_that_knows_more_features(
    spark: SparkSession, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(2, ["Billing", "Nowhere"])
    run_sweep(endpoint, retry__max_attempts=1)
    table = f"delta.`{endpoint.ledger.root}/errors`"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")

    for command in (("errors", "list"), ("audit",)):
        assert endpoint.run(*command, ledger__writer="spark").code == 0
        # It might count rows that Spark has deleted.
        refused = endpoint.run(*command)
        assert (refused.code, 'Set ledger.writer = "spark"' in refused.err) == (2, True)
    found = endpoint.run("doctor", "--no-spark")

    assert "deletionVectors of the table errors" in " ".join(found.told.split())
    assert found.code == 3
