"""Ledger tables that are lost, or another ledger's: none is created again in silence."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from duesweep.core.errors import ConfigError
from duesweep.core.policy import LedgerWriter
from duesweep.core.result import exit_code_of
from duesweep.ledger.base import TABLES
from duesweep.ledger.ledger import ID_PROPERTY, ROLE_PROPERTY, open_ledger
from duesweep.ledger.spark import SPARK_SCHEMAS, SparkTables
from duesweep.stores.sql_journal import SqlJournal
from duesweep.sweep.job import Engine, SweepContext
from support.diagnosis import diagnosed
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep


class World(NamedTuple):
    """The parts of a test."""

    engine: Engine
    endpoint: Endpoint
    ledger: LedgerReader


@pytest.fixture
def world(engine: Engine, endpoint: Endpoint, ledger: LedgerReader) -> World:
    return World(engine, endpoint, ledger)


@pytest.fixture
def context(engine: Engine, endpoint: Endpoint) -> SweepContext:
    """Bound to a ledger that has a row in each table; one message is due. delta-rs made the ledger,
    which takes a tenth of Spark's time.
    """
    endpoint.set_up("Billing")
    endpoint.delay("Nowhere")
    run_sweep(endpoint, retry__max_attempts=1)
    endpoint.delay_many(2, ["Billing", "Nowhere"])
    run_sweep(endpoint)
    endpoint.delay()
    writer = "delta-rs" if engine.spark is None else "spark"
    return endpoint.context(ledger__writer=writer)


def _refused(engine: Engine, context: SweepContext, endpoint: Endpoint) -> str:
    """The error of a sweep that refuses to start."""
    waiting = endpoint.waiting()
    with pytest.raises(ConfigError) as caught:
        run_sweep(context, engine)
    assert endpoint.waiting() == waiting
    return str(caught.value)


@pytest.mark.parametrize("name", ["tombstones", "errors"])
def test_table_that_lost_its_log_is_named_and_the_way_out_leads_out(
    name: str, context: SweepContext, world: World
) -> None:
    engine, endpoint, ledger = world
    file = endpoint.config_file()
    shutil.rmtree(ledger.root / name / "_delta_log")

    refusal = _refused(engine, context, endpoint).replace("`", "")
    assert f"/{name}; restore the _delta_log" in refusal
    found = diagnosed(file)
    nowhere = ("table-exists", '"public"."Nowhere"')
    assert found.to_mend() == {("ledger", str(ledger.root)): "fault", nowhere: "fault"}
    assert "move the data away" in found.of("ledger")["advice"]

    rebound = endpoint.run("setup", "--rebind")
    assert (rebound.code, "freed" in rebound.out) == (0, True)
    assert "move the data away" in _refused(engine, context, endpoint)

    (ledger.root / name).rename(endpoint.folder / "away")
    assert run_sweep(context, engine).dispatched == 1
    assert diagnosed(file).to_mend() == {nowhere: "fault"}
    assert [len(ledger.rows(other)) > 0 for other in TABLES if other != name] == [True] * 3


@pytest.mark.parametrize("name", ["retries", "sweeps"])
def test_table_that_is_gone_is_not_begun_anew(
    name: str, context: SweepContext, world: World
) -> None:
    engine, endpoint, ledger = world
    shutil.rmtree(ledger.root / name)

    assert f"has lost the table {name}" in _refused(engine, context, endpoint)
    assert not (ledger.root / name).exists()
    found = diagnosed(endpoint.config_file())
    assert f"has lost the table {name}" in found.of("ledger")["found"]


@pytest.mark.parametrize("name", ["", "tombstones", "sweeps"])
def test_ledger_lost_during_a_sweep_is_not_created_anew(
    name: str, context: SweepContext, world: World
) -> None:
    engine, endpoint, ledger = world
    place, away = ledger.root / name, endpoint.folder / "away"
    rows = len(ledger.rows("tombstones"))

    @contextmanager
    def going_away(*_: object) -> Iterator[None]:
        place.rename(away)
        # As of a file system that is mounted no more.
        ledger.root.mkdir(exist_ok=True)
        yield

    report = run_sweep(context, engine, shown=going_away)

    assert (report.dispatched, exit_code_of(report)) == (1, 4)
    assert report.ledger_error is not None
    assert [path.name for path in ledger.root.iterdir() if name in {"", path.name}] == []
    if not name:
        ledger.root.rmdir()
    away.rename(place)
    assert run_sweep(context, engine).ledger_error is None
    assert len(ledger.rows("tombstones")) == rows + 1
    assert len(ledger.rows("sweeps")) == 4


def test_table_of_another_ledger_is_named(
    engine: Engine, context: SweepContext, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    other = str(endpoint.folder / "other")
    open_ledger(other, context.ledger_writer, engine.spark).create()
    shutil.rmtree(ledger.root / "errors")
    (endpoint.folder / "other" / "errors").rename(ledger.root / "errors")

    assert "ables of different ledgers" in _refused(engine, context, endpoint)


def test_table_in_the_place_of_another_is_named(
    engine: Engine, context: SweepContext, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    shutil.rmtree(ledger.root / "errors")
    shutil.copytree(ledger.root / "retries", ledger.root / "errors")

    assert "is the ledger's retries, but should be" in _refused(engine, context, endpoint)


def test_ledger_without_a_column_takes_it(
    spark: SparkSession, engine: Engine, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay()
    context = endpoint.context()
    ledger_id = open_ledger(context.ledger_root, context.ledger_writer, spark).create()
    shutil.rmtree(Path(context.ledger_root) / "sweeps")
    sweeps = SparkTables(spark, context.ledger_root).table("sweeps")
    fields = [f for f in SPARK_SCHEMAS["sweeps"] if f.name != "left"]
    older = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in fields)
    ours = f"'{ID_PROPERTY}' = '{ledger_id}', '{ROLE_PROPERTY}' = 'sweeps'"
    spark.sql(f"CREATE TABLE {sweeps} ({older}) USING delta TBLPROPERTIES ({ours})")
    spark.sql(f"INSERT INTO {sweeps} (sweep_id) VALUES ('older')")

    run_sweep(context, engine)

    rows = LedgerReader(Path(context.ledger_root)).rows("sweeps")
    assert {row.sweep_id == "older": row.left for row in rows} == {True: None, False: 0}


def test_rebind_says_what_it_freed(context: SweepContext, endpoint: Endpoint) -> None:
    with context.store.open_driver() as session:
        bound = session.binding.read().ledger

    first, again = (endpoint.run("setup", "--rebind") for _ in range(2))

    assert (first.code, again.code) == (0, 0)
    assert context.store.source in first.out
    assert str(bound) in first.out
    assert "was bound to no ledger" in again.out


def test_ledger_gets_all_rows_of_the_sweep_when_it_is_back(
    engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay()
    run_sweep(endpoint)
    root, away, other = (ledger.root.with_name(name) for name in ("ledger", "away", "other"))
    open_ledger(str(other), LedgerWriter.DELTA_RS, None).create()
    writer = "delta-rs" if engine.spark is None else "spark"
    config = endpoint.config(ledger__writer=writer)
    endpoint.delay_many(3)
    seal = SqlJournal.seal

    def seal_and_replace(journal: SqlJournal, sweep_id: object) -> None:
        seal(journal, sweep_id)  # type: ignore[arg-type]
        root.rename(away)
        other.rename(root)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqlJournal, "seal", seal_and_replace)
        report = run_sweep(config, engine)
    root.rename(other)
    away.rename(root)

    assert "was replaced by" in str(report.ledger_error)
    assert (report.dispatched, exit_code_of(report)) == (3, 4)
    assert ledger.count("tombstones") == 1
    assert run_sweep(config, engine).found == 0
    assert ledger.count("tombstones") == len(endpoint.queue_rows("Billing")) == 4
    assert sorted(row.dispatched for row in ledger.rows("sweeps"))[-2:] == [1, 3]
    assert endpoint.fetch("SELECT FROM duesweep_journal") == []
