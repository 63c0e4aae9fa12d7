"""Sweeps of SQL Server that are raced and killed."""

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from duesweep.sweep.engines import Engine, InProcessEngine
from support.faults.processes import SweepProcess
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep
from support.waiting import until

if TYPE_CHECKING:
    from support.sqlserver_server import SqlServerEndpoint


# The stand-in for SQL Server lets two claims have one row; the later one is repeated, or cut.
_ROUNDS = 10


def _batches(endpoint: "SqlServerEndpoint") -> int:
    journal = endpoint.own_table("journal")
    (row,) = endpoint.fetch(f"SELECT COUNT(*) AS n FROM {journal} WHERE kind = 'batch'")
    return int(row.n)


def _sweep_the_rest(engine: Engine, endpoint: "SqlServerEndpoint") -> None:
    for _ in range(_ROUNDS):
        if not endpoint.waiting():
            return
        run_sweep(endpoint, engine, sweep__slices=1)


def _each_once(endpoint: "SqlServerEndpoint", keys: list[str]) -> None:
    ledger = LedgerReader(endpoint.folder / "ledger")
    arrived = Counter(row.message_id for row in endpoint.queue_rows("Billing"))
    assert (len(arrived), set(arrived.values())) == (len(keys), {1})
    assert endpoint.waiting() == []
    assert sorted(row.message_key for row in ledger.rows("tombstones")) == sorted(keys)
    for row in ledger.rows("sweeps"):
        others = row.skipped + row.gone + row.eligible_later
        assert row.found == row.claimed + others + row.left
        assert row.claimed == row.dispatched + row.failed + row.exhausted
    assert sum(row.dispatched for row in ledger.rows("sweeps")) == len(keys)


def test_driver_killed_while_it_dispatches_leaves_the_rest_to_the_next_sweep(
    sqlserver_endpoint: "SqlServerEndpoint",
) -> None:
    endpoint = sqlserver_endpoint.set_up("Billing")
    keys = endpoint.delay_many(3_000)
    file = endpoint.config_file(sweep__batch_rows=50, sweep__slices=1)
    process = SweepProcess.start("local[2,4]", "never", 0, file)
    process.await_ready()
    process.go()
    until(lambda: _batches(endpoint) > 5)
    process.kill()

    _sweep_the_rest(InProcessEngine(), endpoint)

    ledger = LedgerReader(endpoint.folder / "ledger")
    (abandoned,) = [row for row in ledger.rows("sweeps") if row.outcome == "abandoned"]
    assert 0 < abandoned.dispatched < 3_000
    _each_once(endpoint, keys)


def test_two_sweeps_at_once_move_each_message_once(sqlserver_endpoint: "SqlServerEndpoint") -> None:
    endpoint = sqlserver_endpoint.set_up("Billing")
    keys = endpoint.delay_many(2_000)
    file = endpoint.config_file(sweep__batch_rows=100, sweep__slices=2)
    processes = [SweepProcess.start("local[2,4]", "never", 0, file) for _ in range(2)]
    for process in processes:
        process.await_ready()
    for process in processes:
        process.go()
    for process in processes:
        process.summary()

    _sweep_the_rest(InProcessEngine(), endpoint)

    _each_once(endpoint, keys)


@pytest.mark.parametrize("moment", ["before COMMIT", "after COMMIT"])
def test_task_that_fails_about_its_commit_runs_again_without_a_loss_or_a_double(
    sqlserver_endpoint: "SqlServerEndpoint", moment: str
) -> None:
    endpoint = sqlserver_endpoint.set_up("Billing")
    keys = endpoint.delay_many(600)
    file = endpoint.config_file(sweep__batch_rows=100, sweep__slices=1)
    process = SweepProcess.start("local[2,4]", moment, 2, file)
    process.await_ready()
    process.go()
    process.summary()

    _sweep_the_rest(InProcessEngine(), endpoint)

    _each_once(endpoint, keys)
