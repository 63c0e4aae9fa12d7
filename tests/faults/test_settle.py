"""Settle, killed at each step and raced: nothing lost, nothing doubled."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from duesweep.core.ledger_writer import LedgerWriter
from duesweep.ledger import ledger as ledger_module
from duesweep.ledger import rows
from duesweep.ledger.base import LedgerPiece
from duesweep.ledger.opening import open_ledger
from duesweep.stores import sweeps
from support.endpoint import Endpoint
from support.faults.dead_sweeps import (
    Dead,
    assert_settled_once,
    await_end,
    dispatch_without_settling,
    settle,
)
from support.ledger_reader import LedgerReader
from support.trials.armed import dying


@pytest.mark.on_spark
def test_dead_sweep_gets_its_row_from_the_next_settler(
    spark: SparkSession, dead: Dead, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    settle(spark, dead)

    assert_settled_once(dead, endpoint, ledger)


def _settle_and_die(spark: SparkSession, dead: Dead, point: str, occurrence: int = 1) -> None:
    """A settler that dies at a crash point."""
    with dying(dead.context, point, occurrence) as context:
        settle(spark, Dead(context, dead.run))
    await_end(dead)


POINTS = (
    "before DriverSession.close_sweep",
    "after DriverSession.close_sweep",
    "after DriverSession.seal",
    "after LedgerTables.append(tombstones)",
    "after LedgerTables.append(errors)",
    "after LedgerTables.replace_source(retries)",
    "after LedgerTables.append(sweeps)",
    "before DriverSession.delete_settled",
    "after DriverSession.delete_settled",
)


@pytest.mark.parametrize("point", POINTS)
def test_settle_killed_at_a_point_is_finished_by_the_next(
    point: str,
    spark: SparkSession,
    dead: Dead,
    endpoint: Endpoint,
    ledger: LedgerReader,
) -> None:
    _settle_and_die(spark, dead, point)

    settle(spark, dead)

    assert_settled_once(dead, endpoint, ledger)


@pytest.mark.on_spark
@pytest.mark.parametrize(
    "point",
    [
        "after LedgerTables.append(tombstones)",
        "after LedgerTables.replace_source(retries)",
        "before DriverSession.delete_settled",
    ],
)
def test_what_one_writer_began_the_other_finishes(
    point: str, spark: SparkSession, dead: Dead, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    (other,) = {LedgerWriter.DELTA_RS, LedgerWriter.SPARK} - {dead.context.ledger_writer}
    _settle_and_die(spark, dead, point)

    settle(spark, Dead(replace(dead.context, ledger_writer=other), dead.run))

    assert_settled_once(dead, endpoint, ledger)


def test_writers_of_both_kinds_at_once_settle_once(
    spark: SparkSession, dead: Dead, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    by_writer = [
        Dead(replace(dead.context, ledger_writer=writer), dead.run)
        for writer in (LedgerWriter.DELTA_RS, LedgerWriter.SPARK)
    ]
    with ThreadPoolExecutor(2) as pool:
        for settler in [pool.submit(settle, spark, each) for each in by_writer]:
            settler.result(timeout=600)

    assert_settled_once(dead, endpoint, ledger)


def test_two_settlers_at_once_settle_once(
    spark: SparkSession, dead: Dead, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    open_ledger(dead.context.ledger_root, dead.context.ledger_writer, spark).create()
    with ThreadPoolExecutor(2) as pool:
        for settler in [pool.submit(settle, spark, dead) for _ in range(2)]:
            settler.result(timeout=600)

    assert_settled_once(dead, endpoint, ledger)


def test_lost_race_of_two_appends_counts_once(
    spark: SparkSession, dead: Dead, ledger: LedgerReader
) -> None:
    # Two settlers without a lock, as after a lost session: the same group under the same id.
    shared = open_ledger(dead.context.ledger_root, dead.context.ledger_writer, spark)
    shared.create()
    sweep_id = dead.run.sweep_id
    with dead.context.store.open_driver() as session:
        session.close_sweep(sweep_id, abandoned=True, remaining=0)
        piece = LedgerPiece(rows.sweep(session.summary(sweep_id)[0]), sweep_id)
    with ThreadPoolExecutor(4) as pool:
        appends = [pool.submit(shared.tables.append, "sweeps", [piece]) for _ in range(4)]
        for append in appends:
            append.result(timeout=600)

    assert ledger.count("sweeps") == 1


SIZES = [1_000] * 7 + [9_000] + [1_000] * 3


def _many_exhausted(endpoint: Endpoint) -> tuple[Dead, dict[str, int]]:
    """A dead sweep, and the first byte of each message that it exhausted."""
    endpoint.set_up()
    bodies = {endpoint.delay("Nowhere", body=bytes([n]) * size): n for n, size in enumerate(SIZES)}
    context = endpoint.context(retry__max_attempts=1)
    with context.store.open_driver() as session:
        dead = Dead(context, dispatch_without_settling(context, session))
    await_end(dead)
    return dead, bodies


def _assert_each_once(ledger: LedgerReader, bodies: dict[str, int]) -> None:
    errors = ledger.rows("errors")
    assert {row.message_key: row.body[0] for row in errors} == bodies
    assert len(errors) == len(ledger.rows("tombstones")) == len(bodies)


def test_many_exhausted_messages_are_written_in_pieces_by_whoever_goes_on(
    spark: SparkSession, endpoint: Endpoint, ledger: LedgerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "_BYTES_PER_PIECE", 5_000)
    # As if the pieces were too large to share a commit.
    monkeypatch.setattr(ledger_module, "_BYTES_TOGETHER", 1)
    dead, bodies = _many_exhausted(endpoint)

    # In turns, each killed after the first piece that it adds itself.
    for pieces, writer in enumerate(("delta-rs", "spark", "delta-rs"), start=1):
        mine = Dead(replace(dead.context, ledger_writer=LedgerWriter(writer)), dead.run)
        _settle_and_die(spark, mine, "after LedgerTables.append(errors)", pieces)
    settle(spark, dead)

    _assert_each_once(ledger, bodies)
    assert ledger.commits("errors") > 4
