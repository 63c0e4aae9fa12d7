"""Whole sweeps of the timeouts that SQL persistence keeps, in PostgreSQL and in SQL Server."""

import json
from typing import TYPE_CHECKING, Union

import pytest

from duesweep.engines.base import Engine
from duesweep.errors import ConfigError
from support.ledger_reader import LedgerReader
from support.postgresql_server import PostgreSqlEndpoint
from support.sweeps import run_sweep

if TYPE_CHECKING:
    from support.sqlserver_server import SqlServerEndpoint


Subject = Union[PostgreSqlEndpoint, "SqlServerEndpoint"]


@pytest.fixture(params=["postgresql", "sqlserver"])
def timeouts(request: pytest.FixtureRequest) -> Subject:
    """An endpoint's table, and its queues."""
    queues = ("Billing", "Shipping", "error")
    if request.param == "postgresql":
        return request.getfixturevalue("endpoint").of_kind("sql-persistence").set_up(*queues)
    found: SqlServerEndpoint = request.getfixturevalue("sqlserver_endpoint")
    return found.of_kind("sql-persistence").set_up(*queues)


def test_what_is_due_is_swept_once_and_accounted_for(engine: Engine, timeouts: Subject) -> None:
    keys = timeouts.delay_many(600, ["Billing", "Shipping"])
    keys += [timeouts.delay(due_in_seconds=-seconds) for seconds in (1, 1_800, 40_000)]
    waiting = [timeouts.delay(due_in_seconds=seconds) for seconds in (600, 1_800, 40_000)]

    summary = run_sweep(timeouts, engine, sweep__batch_rows=100, sweep__slices=1)

    assert (summary.found, summary.dispatched, summary.outcome) == (603, 603, "done")
    assert [len(timeouts.queue_rows(queue)) for queue in ("Billing", "Shipping")] == [303, 300]
    assert timeouts.waiting() == sorted(waiting)
    tombstones = LedgerReader(timeouts.folder / "ledger").rows("tombstones")
    assert sorted(row.message_key for row in tombstones) == sorted(keys)
    late_ms = [row.lateness_ms for row in tombstones]
    assert min(late_ms) > 0
    assert 40_000_000 < max(late_ms) < 40_300_000


def test_nothing_is_claimed_where_none_of_the_queues_is_there(
    engine: Engine, timeouts: Subject
) -> None:
    keys = timeouts.delay_many(20, ["Biling", "Shiping"])
    context = timeouts.context(retry__max_attempts=1, retry__error_queue="error")

    with pytest.raises(ConfigError, match=r"queues\.default has none of the queues"):
        run_sweep(context, engine)

    assert timeouts.waiting() == sorted(keys)
    assert timeouts.queue_rows("error") == []
    with context.store.open_driver() as session:
        assert session.sweeps_under_way() == []


def test_exhausted_message_is_whole_in_the_ledger_and_in_the_error_queue(
    engine: Engine, timeouts: Subject
) -> None:
    key = timeouts.delay("Nowhere", body=bytes(range(256)))
    # Where none of the destinations is there, nothing is claimed.
    timeouts.delay("Billing")
    # Longer than a sweep takes on any machine.
    back_off = {"retry__initial_seconds": 3_600, "retry__max_seconds": 3_600}
    config = timeouts.config(retry__max_attempts=2, retry__error_queue="error", **back_off)

    first = run_sweep(config, engine)
    held = run_sweep(config, engine)
    timeouts.end_back_off()
    timeouts.delay("Billing")
    second = run_sweep(config, engine)

    assert (first.failed, held.found, second.exhausted) == (1, 0, 1)
    (error,) = LedgerReader(timeouts.folder / "ledger").rows("errors")
    assert (error.message_key, error.attempts, error.body) == (key, 2, bytes(range(256)))
    assert error.destination == "Nowhere"
    (one,) = timeouts.queue_rows("error")
    assert json.loads(one.headers)["NServiceBus.FailedQ"] == "Nowhere"
    assert timeouts.waiting() == []
