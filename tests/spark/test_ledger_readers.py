"""What other readers make of the ledger: the same as Spark."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import cast
from uuid import UUID, uuid4

import deltalake
import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from duesweep.core.message import Delivered
from duesweep.core.world import micros
from duesweep.ledger.base import TABLES, LedgerPiece
from duesweep.ledger.ledger import Ledger, open_ledger
from duesweep.ledger.rows import SCHEMAS, dispatched
from duesweep.ledger.spark import TIMESTAMP_TYPE
from duesweep.stores.base import DriverSession
from duesweep.stores.tombstone import encode
from duesweep.sweep.spark import SparkEngine
from duesweep.sweep.sweep import InProcessEngine
from duesweep_testing.builders import Due, delayed_row, message
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep

_YEAR_1 = datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
_YEAR_9999 = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
_DUES: list[Due] = [
    *("-infinity", _YEAR_1, datetime(1677, 1, 1, tzinfo=UTC)),
    datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=UTC),
]
_Values = list[tuple[int | None, ...]]


@pytest.fixture(params=["ours", pytest.param("Spark's own", marks=pytest.mark.long)])
def session(request: pytest.FixtureRequest, spark: SparkSession) -> SparkSession:
    """A session as duesweep starts it, and one that others prepared."""
    if request.param != "ours":
        spark.conf.set(TIMESTAMP_TYPE[0], "INT96")
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
        yield [encode(delivered, [0], 0, "Sales")]


def _append_what_nobody_waits_for(ledger: Ledger) -> None:
    sweep_id = uuid4()
    for rows in dispatched(cast("DriverSession", _OneBatch()), sweep_id):
        ledger.tables.append("tombstones", [LedgerPiece(rows, sweep_id)])


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
