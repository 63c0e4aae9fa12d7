"""Journals made anew, restored and mistaken: each belongs to one ledger and one store."""

import pytest
from pyspark.sql import SparkSession

from duesweep.core.ledger_writer import LedgerWriter
from duesweep.errors import ConfigError
from duesweep.ledger.opening import open_ledger
from duesweep.sweep.settle import settle_leftovers
from duesweep.sweep.spark import SparkEngine
from support.endpoint import Endpoint
from support.faults.dead_sweeps import Dead, assert_settled_once, settle
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep


def test_journal_created_anew_loses_and_doubles_nothing(
    spark: SparkSession, dead: Dead, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    settle(spark, dead)
    endpoint.execute(
        "DROP TABLE duesweep_journal, duesweep_attempts, duesweep_sweeps, duesweep_bindings,"
        " duesweep_changes"
    )
    endpoint.set_up()
    endpoint.delay_many(4)

    summary = run_sweep(dead.context, SparkEngine(spark))

    assert (summary.dispatched, summary.failed) == (4, 2)
    tombstones = ledger.rows("tombstones")
    assert len(tombstones) == len({row.message_key for row in tombstones}) == 12
    assert {row.message_key for row in ledger.rows("retries")} == set(endpoint.waiting())


@pytest.mark.on_spark
def test_restored_journal_is_settled_again_without_a_double(
    spark: SparkSession, dead: Dead, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    tables = ("duesweep_sweeps", "duesweep_journal")
    for table in tables:
        endpoint.execute(f"CREATE TABLE saved_{table} AS TABLE {table}")
    settle(spark, dead)
    for table in tables:
        endpoint.execute(f"INSERT INTO {table} OVERRIDING SYSTEM VALUE TABLE saved_{table}")

    settle(spark, dead)

    assert_settled_once(dead, endpoint, ledger)


def test_ledger_of_another_place_is_refused_and_nothing_is_created_there(
    spark: SparkSession, dead: Dead, endpoint: Endpoint
) -> None:
    settle(spark, dead)
    typo = endpoint.folder / "typo"

    with (
        dead.context.store.open_driver() as session,
        pytest.raises(ConfigError, match="--rebind"),
    ):
        settle_leftovers(session, open_ledger(str(typo), LedgerWriter.SPARK, spark))

    assert not typo.exists()


def test_two_stores_of_one_name_are_refused(
    spark: SparkSession, dead: Dead, endpoint: Endpoint
) -> None:
    settle(spark, dead)
    other = endpoint.named("Other").set_up()
    context = other.context(store__name=dead.context.store.source)

    with context.store.open_driver() as session, pytest.raises(ConfigError, match=r"store\.name"):
        settle_leftovers(
            session, open_ledger(dead.context.ledger_root, dead.context.ledger_writer, spark)
        )


def test_ledger_that_cannot_be_written_is_refused_before_anything_is_dispatched(
    spark: SparkSession, dead: Dead, endpoint: Endpoint
) -> None:
    settle(spark, dead)
    lock = endpoint.folder / "ledger" / ".duesweep.lock"
    lock.unlink()
    lock.mkdir()
    endpoint.delay()
    waiting = endpoint.waiting()

    with pytest.raises(ConfigError, match="cannot be written"):
        run_sweep(dead.context, SparkEngine(spark))

    assert endpoint.waiting() == waiting
