"""The ledger after a power failure at each moment of settling: no row is lost or doubled."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable

from duesweep.core.errors import DuesweepError
from duesweep.ledger.base import TABLES
from duesweep.sweep.in_process import InProcessEngine
from duesweep.sweep.job import Engine, SweepContext
from support.endpoint import Endpoint
from support.faults.power import LEFT, lose_unsynced, note_synced, noting_syncs
from support.sweeps import run_sweep
from support.trials.armed import dying

_SETTLING = (
    "after LedgerTables.write(tombstones)",
    "after LedgerTables.write(errors)",
    "after LedgerTables.write(sweeps)",
    "after LedgerTables.write(retries)",
    "before Journal.delete_settled",
    "after Journal.delete_settled",
)
_FIRST = (
    "after LedgerTables.create(tombstones)",
    "after LedgerTables.create(sweeps)",
    "before SourceBinding.bind",
    "after SourceBinding.bind",
)
_OF_COMMANDS = (
    "after LedgerTables.write(changes)",
    "after LedgerTables.create(changes)",
    "after LedgerTables.set_properties(tombstones)",
    "after Journal.delete_settled",
)
_SETTINGS = {"retry__max_attempts": 2, "retry__initial_seconds": 0}


def _failures(*points: str) -> Iterator[object]:
    """Each point with files that are left in any way, and the first one with each way for all
    files; the others have these with `--all` only."""
    for point in points:
        for left in (None, *LEFT):
            is_long = left is not None and point != points[0]
            yield pytest.param(point, left, marks=[pytest.mark.long] * is_long)


@pytest.fixture
def sent(endpoint: Endpoint) -> int:
    """How many messages are dispatched in the end; some more are exhausted."""
    endpoint.set_up("Billing")
    endpoint.delay_many(6, ["Billing", "Nowhere"])
    return 3


def _fail(
    point: str, left: str | None, endpoint: Endpoint, engine: Engine, **settings: object
) -> Sequence[Path]:
    """A sweep, and a power failure at this point of it."""
    root, notes = endpoint.ledger.root, endpoint.folder / "synced"
    note_synced(notes, root)
    with noting_syncs(notes), dying(point):
        run_sweep(endpoint, engine, **_SETTINGS, **settings)
    return lose_unsynced(notes, root, left)


def _sweep_again(context: SweepContext) -> None:
    """A sweep when the power is back."""
    try:
        run_sweep(context, InProcessEngine())
    except DuesweepError as error:
        pytest.fail(str(error))


def _assert_complete(endpoint: Endpoint, sent: int, exhausted: int) -> None:
    ledger = endpoint.ledger
    tombstones = ledger.rows("tombstones")
    outcomes = [row.outcome for row in tombstones]
    assert len({row.message_key for row in tombstones}) == len(tombstones)
    assert (outcomes.count("dispatched"), outcomes.count("exhausted")) == (sent, exhausted)
    assert len(ledger.rows("errors")) == exhausted
    assert sum(row.dispatched for row in ledger.rows("sweeps")) == sent
    assert endpoint.fetch("SELECT FROM duesweep_journal") == []
    assert endpoint.run("audit").code == 0


@pytest.mark.parametrize(("point", "left"), list(_failures(*_SETTLING)))
def test_power_failure_while_a_sweep_is_settled_loses_no_row(
    point: str, left: str | None, endpoint: Endpoint, sent: int
) -> None:
    context = endpoint.context(**_SETTINGS)
    run_sweep(context, InProcessEngine())
    endpoint.delay_many(4, ["Billing", "Nowhere"])

    lost = _fail(point, left, endpoint, InProcessEngine())
    _sweep_again(context)
    _sweep_again(context)

    assert bool(lost) == (point != "before Journal.delete_settled" and "_settled" not in point)
    _assert_complete(endpoint, sent + 2, exhausted=5)


@pytest.mark.parametrize(("point", "left"), list(_failures(*_FIRST)))
def test_power_failure_while_the_first_ledger_is_created_leaves_one_that_works(
    point: str, left: str | None, endpoint: Endpoint, sent: int
) -> None:
    context = endpoint.context(**_SETTINGS)

    lost = _fail(point, left, endpoint, InProcessEngine())
    for _ in range(3):
        _sweep_again(context)

    assert bool(lost) == ("create" in point)
    _assert_complete(endpoint, sent, exhausted=3)


@pytest.mark.parametrize(("point", "left"), list(_failures(*_OF_COMMANDS)))
def test_power_failure_while_a_command_is_settled_loses_no_change(
    point: str, left: str | None, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing")
    run_sweep(endpoint)
    keys = endpoint.delay_many(3, due_in_seconds=3_600)
    root, notes = endpoint.ledger.root, endpoint.folder / "synced"
    note_synced(notes, root)
    with noting_syncs(notes), dying(point):
        endpoint.run("cancel", *keys, "--reason", "x")
    lose_unsynced(notes, root, left)

    endpoint.delay("Billing")
    assert endpoint.run("sweep").code == 0

    assert {row.message_key for row in endpoint.ledger.rows("changes")} == set(keys)
    assert endpoint.run("audit").code == 0
    assert endpoint.run("restore", *keys, "--reason", "x").code == 0
    assert len(endpoint.waiting()) == 3


@pytest.mark.on_spark
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize(
    "point",
    [
        "after LedgerTables.write(tombstones)",
        pytest.param("after Journal.delete_settled", marks=pytest.mark.long),
    ],
)
def test_power_failure_loses_no_row_that_spark_wrote(
    point: str, endpoint: Endpoint, sent: int, request: pytest.FixtureRequest
) -> None:
    spark = request.getfixturevalue("spark")
    context = endpoint.context(ledger__writer="spark", **_SETTINGS)
    engine = InProcessEngine(spark=spark)
    run_sweep(context, engine)
    endpoint.delay_many(4, ["Billing", "Nowhere"])

    lost = _fail(point, None, endpoint, engine, ledger__writer="spark")
    # The JVM would have died too.
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # noqa: SLF001
    run_sweep(context, engine)
    run_sweep(context, engine)

    assert any(path.suffix == ".json" for path in lost) == ("write" in point)
    _assert_complete(endpoint, sent + 2, exhausted=5)


def test_vacuum_and_compaction_of_unsynced_files_are_no_damage(endpoint: Endpoint) -> None:
    """Another program compacts and cleans the tables before the next sweep syncs anything."""
    endpoint.set_up("Billing")
    for _ in range(4):
        endpoint.delay("Billing")
        run_sweep(endpoint)
    for name in TABLES:
        tables = endpoint.context().open_ledger().tables
        tables.compact(name)
        tables.compact(name)
    mark = endpoint.ledger.root / ".duesweep.synced"
    mark.write_text('{"tombstones": 1, "sweeps": 1}', encoding="utf-8")
    for name in TABLES:
        table = DeltaTable(endpoint.ledger.root / name)
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)

    endpoint.delay("Billing")
    run_sweep(endpoint)

    assert not (endpoint.ledger.root / ".duesweep.dropped").exists()
    _assert_complete(endpoint, 5, 0)
