"""The ledger after a power failure at each moment of settling: no row is lost or doubled."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from duesweep.core.account import SweepReport
from duesweep.core.errors import DuesweepError, LedgerError, LedgerLockedError
from duesweep.core.world import NO_PATIENCE
from duesweep.ledger import durable
from duesweep.ledger.base import TABLES, lock_for_writing
from duesweep.ledger.durable import make_durable
from duesweep.operations import maintain
from duesweep.sweep import settle
from duesweep.sweep.in_process import InProcessEngine
from duesweep.sweep.job import Engine, SweepContext
from support.endpoint import Endpoint
from support.faults.power import (
    CHECKPOINTS,
    COMMITS,
    DATA,
    EMPTY,
    GONE,
    LEFT,
    TORN,
    lose,
    lose_unsynced,
    note_synced,
    noting_syncs,
    unsynced,
)
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
    notes = _die(point, endpoint, engine, **settings)
    return lose_unsynced(notes, endpoint.ledger.root, left)


def _die(point: str, endpoint: Endpoint, engine: Engine, **settings: object) -> Path:
    """A sweep that dies at this point; the notes on the synced files."""
    notes = endpoint.folder / "synced"
    note_synced(notes, endpoint.ledger.root)
    with noting_syncs(notes), dying(point):
        run_sweep(endpoint, engine, **_SETTINGS, **settings)
    return notes


def _lengthen(endpoint: Endpoint, version: int) -> None:
    """Let all tables have this version, by commits that change nothing."""
    root = endpoint.ledger.root
    for name in TABLES:
        for each in range(DeltaTable(root / name).version() + 1, version + 1):
            commit = root / name / "_delta_log" / f"{each:020}.json"
            commit.write_text('{"commitInfo":{"timestamp":1}}\n', encoding="utf-8")
    make_durable(str(root))


def _sweep_again(context: SweepContext) -> SweepReport:
    """A sweep when the power is back."""
    try:
        return run_sweep(context, InProcessEngine())
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


@pytest.mark.parametrize(
    ("version", "left", "spared"),
    [
        pytest.param(24, EMPTY, (), id="compaction"),
        pytest.param(24, EMPTY, (COMMITS,), id="data_at_compaction"),
        pytest.param(24, EMPTY, (DATA,), id="commits_at_compaction"),
        pytest.param(98, EMPTY, (), id="checkpoint"),
        pytest.param(98, EMPTY, (COMMITS,), id="data_and_checkpoint"),
        pytest.param(98, EMPTY, (DATA,), id="commit_and_checkpoint"),
        pytest.param(98, EMPTY, (CHECKPOINTS,), id="commit_before_checkpoint"),
        pytest.param(98, GONE, (CHECKPOINTS,), id="no_commit_before_checkpoint"),
        pytest.param(98, TORN, (COMMITS, DATA), id="checkpoint_alone"),
        pytest.param(98, GONE, (COMMITS, DATA, "_last_checkpoint"), id="no_checkpoint"),
    ],
)
def test_power_failure_at_a_compaction_or_a_checkpoint_loses_no_row(
    version: int, left: str, spared: Sequence[str], endpoint: Endpoint, sent: int
) -> None:
    """The next commit is compacted, or has a checkpoint."""
    context = endpoint.context(**_SETTINGS)
    run_sweep(context, InProcessEngine())
    _lengthen(endpoint, version)
    endpoint.delay_many(4, ["Billing", "Nowhere"])

    notes = _die("after LedgerTables.write(sweeps)", endpoint, InProcessEngine())
    lost = unsynced(notes, endpoint.ledger.root)
    lose(lost, left, *spared)

    assert _sweep_again(context).ledger_error is None

    names = {path.name for path in lost}
    assert f"{version + 1:020}.{'checkpoint.parquet' if version == 98 else 'json'}" in names
    assert (f"{version + 2:020}.json" in names) == (version == 24)
    _assert_complete(endpoint, sent + 2, exhausted=5)


def test_checkpoint_that_a_log_needs_stays_beside_a_damaged_commit(endpoint: Endpoint) -> None:
    """Delta has cleaned the log up to the checkpoint."""
    endpoint.set_up("Billing")
    run_sweep(endpoint)
    _lengthen(endpoint, 98)
    endpoint.delay("Billing")
    root = endpoint.ledger.root
    lost = unsynced(_die("after LedgerTables.write(sweeps)", endpoint, InProcessEngine()), root)
    lose(lost, EMPTY, DATA, CHECKPOINTS)
    for name in TABLES:
        for version in range(98):
            (root / name / "_delta_log" / f"{version:020}.json").unlink()
    endpoint.delay("Billing")

    assert "99.json is empty" in str(run_sweep(endpoint).ledger_error)

    assert not (root / ".duesweep.dropped").exists()
    assert len(endpoint.fetch("SELECT FROM duesweep_sweeps")) == 2


def _of_two(endpoint: Endpoint) -> tuple[Endpoint, Endpoint]:
    """Two endpoints with a sweep each in one ledger, and a message each that is due."""
    both = (endpoint.set_up("Billing"), endpoint.named("Other").set_up())
    for each in both:
        each.delay("Billing")
        run_sweep(each)
        each.delay("Billing")
    assert both[0].ledger.root == both[1].ledger.root
    return both


@pytest.mark.parametrize("spared", [COMMITS, DATA], ids=["data", "commits"])
def test_power_failure_loses_no_row_of_two_sources(spared: str, endpoint: Endpoint) -> None:
    """The files of one are damaged, and the commits after these are of the other one."""
    one, other = _of_two(endpoint)
    root = endpoint.ledger.root
    lost = unsynced(_die("after LedgerTables.write(sweeps)", one, InProcessEngine()), root)
    _die("after LedgerTables.write(sweeps)", other, InProcessEngine())
    lose(lost, EMPTY, spared)
    one.delay("Billing")

    first = run_sweep(one)

    assert "A power failure damaged commits" in str(first.ledger_error)
    assert not (root / ".duesweep.dropped").exists()
    for each in (other, one, other):
        each.delay("Billing")
        assert run_sweep(each).ledger_error is None
    assert not (root / ".duesweep.unsettled").exists()
    rows = endpoint.ledger.rows("tombstones")
    assert len({row.message_key for row in rows}) == len(rows) == 8
    assert sum(row.dispatched for row in endpoint.ledger.rows("sweeps")) == 8
    for each in (one, other):
        assert each.run("audit").code == 0
    assert endpoint.fetch("SELECT FROM duesweep_sweeps") == []


def test_commit_that_its_source_has_forgotten_stays_after_a_damaged_one(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a version writes it that syncs nothing."""
    one, other = _of_two(endpoint)
    root = endpoint.ledger.root
    lost = unsynced(_die("after LedgerTables.write(sweeps)", one, InProcessEngine()), root)
    with monkeypatch.context() as patched:
        patched.setattr(settle, "make_durable", lambda _: None)
        assert run_sweep(other).ledger_error is None
    lose(lost, EMPTY, COMMITS)

    for each in (one, other, one, other):
        each.delay("Billing")
        assert "A power failure damaged commits" in str(run_sweep(each).ledger_error)

    assert not (root / ".duesweep.dropped").exists()
    assert len(endpoint.fetch("SELECT FROM duesweep_sweeps")) == 5


@pytest.mark.parametrize(
    "point", ["after LedgerTables.write(sweeps)", "after Journal.delete_settled"]
)
def test_power_failure_after_a_compaction_loses_no_row(point: str, endpoint: Endpoint) -> None:
    """`maintain` dies after it wrote small files together, of which one may not be on the disk."""
    endpoint.set_up("Billing")
    for _ in range(2):
        endpoint.delay("Billing")
        run_sweep(endpoint)
    endpoint.delay("Billing")
    notes = _die(point, endpoint, InProcessEngine())
    assert endpoint.context().open_ledger().tables.compact("tombstones") == 3
    lose(unsynced(notes, endpoint.ledger.root), EMPTY, COMMITS)

    assert endpoint.run("maintain").code == 0
    _assert_complete(endpoint, 3, 0)


def test_power_failure_after_old_rows_were_removed_blocks_no_source(endpoint: Endpoint) -> None:
    """The file that takes the place of one with old and newer rows is not on the disk."""
    one, other = _of_two(endpoint)
    root, tables = endpoint.ledger.root, endpoint.context().open_ledger().tables
    tables.compact("tombstones")
    make_durable(str(root))
    notes = endpoint.folder / "synced"
    note_synced(notes, root)
    source = one.context().store.source
    assert tables.remove("tombstones", source, "dispatched_at", datetime.now(UTC)) > 0
    lose(unsynced(notes, root), EMPTY, COMMITS)

    for each in (one, other, one, other):
        each.delay("Billing")
        assert run_sweep(each).ledger_error is None
    for each in (one, other):
        assert each.run("audit").code == 0


def test_disk_that_cannot_be_read_holds_up_no_message(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.set_up("Billing").delay("Billing")
    run_sweep(endpoint)
    endpoint.delay("Billing")

    def refuse(_: Path) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(durable, "has_torn", refuse)
    report = None
    with suppress(OSError):
        report = run_sweep(endpoint)

    assert report is not None
    assert report.dispatched == 1
    assert "cannot be looked at: Input/output error" in str(report.ledger_error)


def test_files_are_deleted_only_while_nothing_is_written_that_is_not_on_the_disk(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay("Billing")
    run_sweep(endpoint)
    calls = []

    def sync(root: str) -> None:
        with pytest.raises(LedgerLockedError), lock_for_writing(root, NO_PATIENCE):
            pass
        calls.append(root)

    monkeypatch.setattr(maintain, "make_durable", sync)

    assert endpoint.run("maintain").code == 0
    assert len(calls) == len(TABLES)


def test_damaged_commit_is_not_taken_for_one_on_the_disk(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    run_sweep(endpoint)
    endpoint.delay("Billing")
    root = endpoint.ledger.root
    mark = (root / ".duesweep.synced").read_text("utf-8")
    lost = unsynced(_die("after LedgerTables.write(sweeps)", endpoint, InProcessEngine()), root)
    lose(lost, EMPTY, COMMITS)

    with pytest.raises(LedgerError, match="is empty, torn or missing; the journal keeps the rows"):
        make_durable(str(root))

    assert (root / ".duesweep.synced").read_text("utf-8") == mark
