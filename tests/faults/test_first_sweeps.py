"""First sweeps at once: the journal belongs to one ledger, and everything is in it."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

from duesweep.core.ledger_writer import LedgerWriter
from duesweep.core.patience import Patience
from duesweep.errors import ConfigError
from duesweep.ledger.ledger import Ledger
from duesweep.ledger.opening import open_ledger
from duesweep.stores.due import SqlDriver
from duesweep.stores.journal import SweepSummary
from duesweep.sweep.engines import Engine
from duesweep.sweep.settle import check_binding
from support.endpoint import Endpoint
from support.faults.processes import SweepProcess
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep


@contextmanager
def _seeing_no_binding_at_once(count: int) -> Iterator[None]:
    """Each of `count` threads has seen that the journal is unbound before any of them goes on."""
    barrier, binding = threading.Barrier(count), SqlDriver.binding
    has_seen = threading.local()

    def seen_by_all(session: SqlDriver) -> UUID | None:
        found = binding(session)
        if not getattr(has_seen, "it", False):
            has_seen.it = True
            assert found is None
            barrier.wait(timeout=120)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqlDriver, "binding", seen_by_all)
        yield


def _sweep_at_once(
    engine: Engine, endpoint: Endpoint, roots: Sequence[Path]
) -> list[SweepSummary | ConfigError]:
    context = endpoint.context()

    def one(root: Path) -> SweepSummary | ConfigError:
        try:
            return run_sweep(replace(context, ledger_root=str(root)), engine)
        except ConfigError as error:
            return error

    with _seeing_no_binding_at_once(len(roots)), ThreadPoolExecutor(len(roots)) as pool:
        return list(pool.map(one, roots))


@pytest.mark.parametrize("count", [2, 4])
def test_of_first_sweeps_with_a_root_each_one_binds_and_the_others_refuse(
    count: int, engine: Engine, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing")
    keys = endpoint.delay_many(20)
    roots = [endpoint.folder / f"ledger{number}" for number in range(count)]

    ended = _sweep_at_once(engine, endpoint, roots)

    (winner,) = [n for n, one in enumerate(ended) if isinstance(one, SweepSummary)]
    refused = [one for one in ended if isinstance(one, ConfigError)]
    assert len(refused) == count - 1
    assert all("setup --rebind" in str(one) and one.exit_code == 2 for one in refused)
    assert [root.exists() for root in roots] == [n == winner for n in range(count)]
    tombstones = LedgerReader(roots[winner]).rows("tombstones")
    assert sorted(row.message_key for row in tombstones) == sorted(keys)
    assert len(endpoint.queue_rows("Billing")) == 20


@pytest.mark.parametrize("count", [2, 4])
def test_first_sweeps_with_one_root_all_bind_to_its_ledger(
    count: int, engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    keys = endpoint.delay_many(20)

    ended = _sweep_at_once(engine, endpoint, [ledger.root] * count)

    assert sum(one.dispatched for one in ended if isinstance(one, SweepSummary)) == 20
    assert not [one for one in ended if isinstance(one, ConfigError)]
    assert sorted(row.message_key for row in ledger.rows("tombstones")) == sorted(keys)


def test_who_loses_the_race_without_the_lock_reads_back_who_won(
    spark: SparkSession, endpoint: Endpoint
) -> None:
    # As after a session that was lost, and its lock with it.
    endpoint.set_up("Billing")
    store = endpoint.context().store
    created = threading.Barrier(2)
    create = Ledger.create

    def create_together(ledger: Ledger, patience: Patience) -> UUID:
        ledger_id = create(ledger, patience)
        created.wait(timeout=120)
        return ledger_id

    def bind(root: str) -> ConfigError | None:
        with store.open_driver() as session:
            try:
                check_binding(
                    session, open_ledger(str(endpoint.folder / root), LedgerWriter.SPARK, spark)
                )
            except ConfigError as error:
                return error
        return None

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setattr(Ledger, "create", create_together)
        patch.setattr(SqlDriver, "try_settling", lambda _: True)
        errors = list(pool.map(bind, ["one", "two"]))

    (error,) = [error for error in errors if error is not None]
    assert "is new, empty and not in use" in str(error)


def test_ledger_that_was_created_and_not_bound_is_taken_by_the_next_first_sweep(
    spark: SparkSession, engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay()
    context = endpoint.context()
    ledger_id = open_ledger(context.ledger_root, context.ledger_writer, spark).create()
    # And that one died in the middle of it.
    for file in sorted((ledger.root / "sweeps").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()

    assert run_sweep(context, engine).dispatched == 1

    with context.store.open_driver() as session:
        assert session.binding() == ledger_id
    assert len(ledger.rows("sweeps")) == 1


def test_first_sweeps_in_processes_of_their_own(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(2_000)
    file = endpoint.config_file()
    roots = [endpoint.folder / "one", endpoint.folder / "two"]
    processes = [
        SweepProcess.start("in-process", "never", 0, file, f"ledger.root={root}") for root in roots
    ]
    for process in processes:
        process.await_ready()
    for process in processes:
        process.go()

    ended = [process.summary() for process in processes]

    assert sorted(one["exit_code"] for one in ended) == [0, 2]
    (winner,) = [root for root, one in zip(roots, ended, strict=True) if one["exit_code"] == 0]
    assert LedgerReader(winner).count("tombstones") == 2_000
    assert [root.exists() for root in roots] == [root == winner for root in roots]
