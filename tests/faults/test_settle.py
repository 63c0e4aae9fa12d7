"""Settle, killed at each step, raced and out of order: nothing lost, nothing doubled."""

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from endpoint import Endpoint
from ledger_reader import LedgerReader
from pyspark.sql import SparkSession
from waiting import until

from duesweep import wiring
from duesweep.dispatch import DispatchJob, dispatch_slice
from duesweep.errors import ConfigError
from duesweep.ledger.tables import Ledger
from duesweep.outcome import Delivered, Outcomes
from duesweep.parts import SweepParts
from duesweep.settle import settle_leftovers, settle_sweep
from duesweep.stores.postgresql.driver import PostgreSqlDriverSession
from duesweep.stores.values import Slices, SweepRun
from duesweep.sweep import sweep

_WAITING = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


class KilledError(BaseException):
    """The process ends here."""


@dataclass
class Dead:
    """A sweep that was dispatched, and whose driver died before it closed it."""

    parts: SweepParts
    run: SweepRun


def dispatch_without_settling(parts: SweepParts, session: PostgreSqlDriverSession) -> SweepRun:
    run = session.open_sweep(session.horizon())
    plan = session.plan(run, 1)
    keys = _due_keys(session, plan)
    job = DispatchJob(
        store=parts.store,
        queue=parts.queue,
        run=run,
        limits=parts.limits,
        retry=parts.retry,
        max_exhausted=parts.max_exhausted,
        error_queue=parts.error_queue,
    )
    assert plan.found == len(keys)
    dispatch_slice(job, 0, keys, [100] * len(keys))
    return run


def _due_keys(session: PostgreSqlDriverSession, plan: Slices) -> list[str]:
    connection = session._connection._raw  # noqa: SLF001 - the plan's own query, without Spark
    rows = connection.execute(plan.tickets_query.encode()).fetchall()
    return [key for _, keys, _ in rows for key in keys.split(",")]


@pytest.fixture
def dead(endpoint: Endpoint) -> Dead:
    """7 dispatched, 2 failed, 1 exhausted, in batches of 3; its driver is gone."""
    endpoint.set_up("Billing")
    endpoint.delay_many(7)
    exhausted, *_ = endpoint.delay_many(3, ["Nowhere"])
    parts = wiring.parts(endpoint.config(retry__max_attempts=2, sweep__batch_rows=3))
    endpoint.execute(
        "INSERT INTO duesweep_attempts"
        " VALUES ($1, $2, NULL, NULL, 1, now(), now(), now(), 'x', 'x')",
        parts.store.source,
        exhausted,
    )
    with parts.store.open_driver() as session:
        run = dispatch_without_settling(parts, session)
    return Dead(parts, run)


def settle(spark: SparkSession, dead: Dead) -> None:
    with dead.parts.store.open_driver() as session:
        settle_leftovers(spark, session, Ledger(spark, dead.parts.ledger_root))


def assert_settled_once(dead: Dead, endpoint: Endpoint, ledger: LedgerReader) -> None:
    tombstones = ledger.rows("tombstones")
    assert len(tombstones) == len({row.message_key for row in tombstones}) == 8
    assert {row.sweep_id for row in tombstones} == {str(dead.run.sweep_id)}
    assert sum(row.outcome == "exhausted" for row in tombstones) == 1
    assert len(ledger.rows("errors")) == 1
    assert {row.message_key for row in ledger.rows("retries")} == set(endpoint.waiting())
    (row,) = ledger.rows("sweeps")
    assert row.sweep_id == str(dead.run.sweep_id)
    assert (row.outcome, row.found, row.claimed) == ("abandoned", 10, 10)
    assert (row.dispatched, row.failed, row.exhausted, row.skipped, row.left) == (7, 2, 1, 0, 0)
    for table in ("duesweep_journal", "duesweep_sweeps"):
        assert endpoint.fetch(f"SELECT FROM {table}") == []


def test_dead_sweep_gets_its_row_from_whoever_settles_it(
    spark: SparkSession, dead: Dead, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    settle(spark, dead)

    assert_settled_once(dead, endpoint, ledger)


def _before(
    target: type, name: str, when: Callable[..., bool]
) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: _kill(patch, target, name, when, after=False)


def _after(
    target: type, name: str, when: Callable[..., bool]
) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: _kill(patch, target, name, when, after=True)


def _kill(
    patch: pytest.MonkeyPatch, target: type, name: str, when: Callable[..., bool], *, after: bool
) -> None:
    original = getattr(target, name)

    def killing(*arguments: Any, **options: Any) -> Any:
        if when(*arguments) and not after:
            raise KilledError
        result = original(*arguments, **options)
        if when(*arguments):
            raise KilledError
        return result

    patch.setattr(target, name, killing)


def _always(*_: object) -> bool:
    return True


def _table(wanted: str) -> Callable[..., bool]:
    return lambda _self, name, *_: name == wanted


STEPS = {
    "before close": _before(PostgreSqlDriverSession, "close_sweep", _always),
    "after close": _after(PostgreSqlDriverSession, "close_sweep", _always),
    "after seal": _after(PostgreSqlDriverSession, "seal", _always),
    "after tombstones": _after(Ledger, "append", _table("tombstones")),
    "after errors": _after(Ledger, "append", _table("errors")),
    "after retries": _after(Ledger, "replace_source", _table("retries")),
    "after sweeps": _after(Ledger, "append", _table("sweeps")),
    "before delete": _before(PostgreSqlDriverSession, "delete_settled", _always),
    "after delete": _after(PostgreSqlDriverSession, "delete_settled", _always),
}


@pytest.mark.parametrize("step", STEPS)
def test_settle_killed_at_a_step_is_finished_by_the_next(
    step: str,
    spark: SparkSession,
    dead: Dead,
    endpoint: Endpoint,
    ledger: LedgerReader,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        STEPS[step](patch)
        with pytest.raises(KilledError):
            settle(spark, dead)

    settle(spark, dead)

    assert_settled_once(dead, endpoint, ledger)


def test_two_settlers_at_once_settle_once(
    spark: SparkSession, dead: Dead, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    Ledger(spark, dead.parts.ledger_root).create()
    with ThreadPoolExecutor(2) as pool:
        for settler in [pool.submit(settle, spark, dead) for _ in range(2)]:
            settler.result(timeout=120)

    assert_settled_once(dead, endpoint, ledger)


def test_lost_race_of_two_appends_counts_once(
    spark: SparkSession, dead: Dead, ledger: LedgerReader
) -> None:
    # Two settlers without a lock, as after a lost session: the same group under the same id.
    shared = Ledger(spark, dead.parts.ledger_root)
    shared.create()
    sweep_id = uuid.uuid4()
    row = dict.fromkeys(shared.spark.read.format("delta").load(f"{shared.root}/sweeps").columns)
    rows_df = spark.createDataFrame([row | {"sweep_id": "x"}], ledger.table("sweeps").schema)
    with ThreadPoolExecutor(4) as pool:
        appends = [
            pool.submit(shared.append, "sweeps", rows_df, sweep_id=sweep_id) for _ in range(4)
        ]
        for append in appends:
            append.result(timeout=120)

    assert ledger.table("sweeps").count() == 1


def test_batches_that_commit_out_of_the_order_of_their_ids_are_all_settled(
    spark: SparkSession, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    first, second = endpoint.delay_many(2)
    parts = wiring.parts(endpoint.config())
    with parts.store.open_driver() as session:
        run = session.open_sweep(session.horizon())
        session.plan(run, 2)
        written, go = threading.Event(), threading.Event()
        with ThreadPoolExecutor(2) as pool:

            def hold() -> None:
                written.set()
                assert go.wait(timeout=30)

            slow = pool.submit(deliver_one, parts, run, first, hold)
            assert written.wait(timeout=30)  # its journal row has the lower id, uncommitted
            deliver_one(parts, run, second)
            closing = pool.submit(session.close_sweep, run.sweep_id, abandoned=False, remaining=0)
            until(lambda: endpoint.fetch(_WAITING))
            go.set()
            slow.result(timeout=60)
            assert closing.result(timeout=60)
        ledger_tables = Ledger(spark, parts.ledger_root)
        ledger_tables.create()
        settle_sweep(spark, session, ledger_tables, run.sweep_id)

    assert {row.message_key for row in ledger.rows("tombstones")} == {first, second}


def deliver_one(
    parts: SweepParts, run: SweepRun, key: str, before_commit: Callable[[], None] = lambda: None
) -> None:
    """One batch of one message."""
    with (
        parts.store.open_task() as store,
        parts.queue.open(store) as queue,
        store.transaction(),
    ):
        claim = store.claim(run, [key])
        (message,) = claim.messages
        destination = queue.resolve(message.destination)
        assert queue.deliver(destination, [message]) == {}
        outcomes = Outcomes(delivered=(Delivered(message, str(destination)),))
        store.finish(run, 0, outcomes, claim.server_us)
        before_commit()


def test_late_task_of_a_dead_sweep_is_fenced(
    spark: SparkSession, dead: Dead, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    settle(spark, dead)
    late = endpoint.delay()
    job = DispatchJob(
        store=dead.parts.store,
        queue=dead.parts.queue,
        run=dead.run,
        limits=dead.parts.limits,
        retry=dead.parts.retry,
        max_exhausted=1,
        error_queue=None,
    )

    dispatch_slice(job, 0, [late], [100])

    assert late in endpoint.waiting()
    assert_settled_once_but(late, dead, endpoint, ledger)


def assert_settled_once_but(key: str, dead: Dead, endpoint: Endpoint, ledger: LedgerReader) -> None:
    endpoint.execute(f"DELETE FROM {endpoint.delayed} WHERE id = $1", key)
    assert_settled_once(dead, endpoint, ledger)


def test_journal_created_anew_loses_and_doubles_nothing(
    spark: SparkSession, dead: Dead, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    settle(spark, dead)
    endpoint.execute(
        "DROP TABLE duesweep_journal, duesweep_attempts, duesweep_sweeps, duesweep_bindings"
    )
    endpoint.set_up()
    endpoint.delay_many(4)

    summary = sweep(spark, dead.parts)

    assert (summary.dispatched, summary.failed) == (4, 2)
    tombstones = ledger.rows("tombstones")
    assert len(tombstones) == len({row.message_key for row in tombstones}) == 12
    assert {row.message_key for row in ledger.rows("retries")} == set(endpoint.waiting())


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
        dead.parts.store.open_driver() as session,
        pytest.raises(ConfigError, match="--rebind"),
    ):
        settle_leftovers(spark, session, Ledger(spark, str(typo)))

    assert not typo.exists()


def test_two_stores_of_one_name_are_refused(
    spark: SparkSession, dead: Dead, endpoint: Endpoint
) -> None:
    settle(spark, dead)
    other = endpoint.named("Other").set_up()
    parts = wiring.parts(other.config(store__name=dead.parts.store.source))

    with parts.store.open_driver() as session, pytest.raises(ConfigError, match=r"store\.name"):
        settle_leftovers(spark, session, Ledger(spark, dead.parts.ledger_root))


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
        sweep(spark, dead.parts)

    assert endpoint.waiting() == waiting
