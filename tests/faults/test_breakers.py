"""Outages that pass while a sweep runs, and one that does not."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from duesweep.core.errors import ConfigError, ExitCode
from duesweep.core.result import exit_code_of
from duesweep.operations.demo.server import EmbeddedServer
from duesweep.sweep.job import Engine
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.ports import free_port
from support.postgresql_server import PostgreSqlEndpoint, endpoint_in_postgresql
from support.rabbitmq.broker import Broker
from support.rabbitmq.commands import set_up, settings
from support.sweeps import run_sweep
from support.trials.armed import following
from support.trials.points import HOLD, Plan
from support.waiting import until

_BATCH_ROWS = 50
# A lock is waited for a second.
_IMPATIENT = {"timeouts__silence_seconds": 12}
_BATCHES = "SELECT FROM duesweep_journal WHERE kind = 'batch'"


def _assert_one_tombstone_each(ledger: LedgerReader, count: int) -> None:
    tombstones = ledger.rows("tombstones")
    assert len(tombstones) == len({row.message_key for row in tombstones}) == count


def test_locked_queue_table_is_left_to_the_next_sweep_and_holds_up_no_other(
    engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing", "Shipping")
    endpoint.delay_many(2_000, ("Billing", "Shipping"))
    context = endpoint.context(sweep__batch_rows=_BATCH_ROWS, **_IMPATIENT)

    with endpoint.server.locked(endpoint.addresses.parse("Shipping")):
        locked = run_sweep(context, engine)
        billed = len(endpoint.queue_rows("Billing"))
    after = run_sweep(endpoint, engine)

    assert exit_code_of(locked) == ExitCode.WORK_LEFT
    assert (locked.found, locked.dispatched, locked.left, billed) == (2_000, 1_000, 1_000, 1_000)
    assert "lock" in str(locked.reason)
    (breaker,) = locked.breakers
    assert (breaker.name, breaker.state, breaker.left) == ("Shipping", "triggered", 1_000)
    # It is not tried again, each time for as long as a lock's time-out.
    assert breaker.seconds < context.breaker.trigger_seconds
    assert (after.outcome, after.dispatched, after.left) == ("done", 1_000, 0)
    assert (endpoint.waiting(), endpoint.attempts()) == ([], {})
    assert len(endpoint.queue_rows("Shipping")) == 1_000
    _assert_one_tombstone_each(ledger, 2_000)


def test_round_that_moves_nothing_is_not_in_the_ledger_and_not_missed_there(
    engine: Engine, endpoint: PostgreSqlEndpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing", "Shipping")
    endpoint.delay_many(20, ("Billing", "Shipping"))
    context = endpoint.context(breaker__trigger_seconds=5, breaker__recovery_failures_per_second=10)

    table = endpoint.addresses.parse("Shipping")
    refuse = "RAISE EXCEPTION 'later' USING ERRCODE = '25006';"
    endpoint.server.add_trigger("BEFORE INSERT", str(table), refuse)
    refused: ConfigError | None = None
    try:
        shut = run_sweep(context, engine)
        endpoint.server.execute(f"DROP TRIGGER acts ON {table}")
        after = run_sweep(endpoint, engine)
    except ConfigError as error:
        refused = error

    # The ledger would look like an older copy.
    assert refused is None

    assert (shut.dispatched, shut.left, len(shut.sweep_ids)) == (10, 10, 1)
    assert (after.outcome, after.dispatched) == ("done", 10)
    ids = {row.sweep_id for row in ledger.rows("sweeps")}
    assert ids == {*shut.sweep_ids, *after.sweep_ids}


@pytest.fixture
def restarting(open_folder: Path) -> Iterator[EmbeddedServer]:
    """A PostgreSQL server of the test's own, which loses nothing that it committed."""
    settings = {"TimeZone": "UTC", "synchronous_commit": "on"}
    with EmbeddedServer(open_folder, port=free_port(), trusts_all=True, **settings) as server:
        yield server


def _endpoint_on(server: EmbeddedServer, folder: Path) -> PostgreSqlEndpoint:
    admin = psycopg.connect(server.dsn, autocommit=True)
    return endpoint_in_postgresql(server.dsn, folder, admin)


def test_server_that_restarts_while_a_sweep_dispatches_cuts_nothing_and_doubles_nothing(
    restarting: EmbeddedServer, tmp_path: Path
) -> None:
    endpoint = _endpoint_on(restarting, tmp_path)
    endpoint.set_up("Billing")
    endpoint.delay_many(3_000)
    context = endpoint.context(sweep__batch_rows=5)

    with ThreadPoolExecutor() as pool:
        sweeping = pool.submit(run_sweep, context)
        until(lambda: len(endpoint.fetch(_BATCHES)) > 100, 300)
        endpoint.server.admin.close()
        restarting.restart()
        summary = sweeping.result(300)

    after = _endpoint_on(restarting, tmp_path)
    assert (summary.outcome, summary.reason) == ("done", None)
    assert (summary.found, summary.dispatched) == (3_000, 3_000)
    assert (summary.gone, summary.skipped, summary.left) == (0, 0, 0)
    assert after.waiting() == []
    times = Counter(row.headers for row in after.queue_rows("Billing"))
    assert (len(times), times.total()) == (3_000, 3_000)
    (breaker,) = summary.breakers
    assert (breaker.name, breaker.state) == ("store and queues", "closed")
    ledger = LedgerReader(tmp_path / "ledger", _no_spark)
    _assert_one_tombstone_each(ledger, 3_000)
    after.server.admin.close()


def _no_spark() -> object:
    raise AssertionError("nobody asked for Spark")


def test_broker_that_is_stopped_and_started_while_a_sweep_dispatches_leaves_nothing(
    endpoint: Endpoint, broker: Broker, ledger: LedgerReader
) -> None:
    set_up(endpoint, broker, "Billing")
    endpoint.delay_many(2_000)
    # The sweep waits there until the broker has stopped: else it could be done by then.
    plan = Plan(str(endpoint.folder), "before QueueSession.deliver", occurrence=10, action=HOLD)
    claim = "before TaskSession.claim"

    with ThreadPoolExecutor() as pool, following(plan) as reached:
        context = endpoint.context(
            **settings(broker, sweep__batch_rows=_BATCH_ROWS, breaker__trigger_seconds=120),
            **_IMPATIENT,
        )
        sweeping = pool.submit(run_sweep, context)
        until(plan.fired.exists, 300)
        broker.connection.close()
        broker.server.control("stop_app")
        claims = reached[claim]
        plan.resume.touch()
        # It continues with other batches once it has given up to connect.
        until(lambda: reached[claim] > claims, 60)
        broker.server.control("start_app")
        summary = sweeping.result(300)

    assert (summary.outcome, summary.dispatched) == ("done", 2_000)
    assert (endpoint.waiting(), endpoint.attempts()) == ([], {})
    (breaker,) = summary.breakers
    assert (breaker.name, breaker.state) == ("Billing", "closed")
    broker.connect()
    times = Counter(one.message_id for one in broker.drain("Billing"))
    assert len(times) == 2_000
    # Only of the batch that the stop cut.
    assert times.total() - 2_000 <= _BATCH_ROWS
    _assert_one_tombstone_each(ledger, 2_000)
