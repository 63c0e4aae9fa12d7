"""A sweep whose driver died is settled once by the next process: nothing is lost or doubled."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from duesweep.core.account import SweepReport
from duesweep.core.errors import ConfigError, NothingDueError
from duesweep.core.result import exit_code_of
from duesweep.ledger import ledger as ledger_module
from duesweep.stores import sql_journal
from duesweep.sweep.in_process import InProcessEngine
from duesweep.sweep.job import Engine
from duesweep.sweep.spark import SparkEngine
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep
from support.trials.armed import dying

# Failed messages stay in back-off, however long a test takes.
_RETRY = {"retry__max_attempts": 2, "retry__initial_seconds": 3_600, "retry__max_seconds": 3_600}
_JOURNAL = ("duesweep_journal", "duesweep_sweeps")
WRITERS = ("delta-rs", "spark")


@dataclass(frozen=True)
class Dead:
    """A store with a sweep whose driver is gone; another sweep settles it."""

    endpoint: Endpoint
    writer: str
    engine_of: Callable[[str], Engine]

    def settle(self, writer: str | None = None, **settings: object) -> SweepReport:
        writer = writer or self.writer
        settings = {**_RETRY, "ledger__writer": writer, **settings}
        return run_sweep(self.endpoint, self.engine_of(writer), **settings)

    def die(self, point: str, writer: str | None = None, **settings: object) -> None:
        with dying(point):
            self.settle(writer, **settings)

    def assert_settled_once(self, ledger: LedgerReader) -> None:
        (row,) = [row for row in ledger.rows("sweeps") if row.outcome == "abandoned"]
        assert (row.found, row.claimed) == (10, 10)
        assert (row.dispatched, row.failed, row.exhausted, row.skipped, row.left) == (7, 2, 1, 0, 0)
        tombstones = ledger.rows("tombstones")
        assert len(tombstones) == len({row.message_key for row in tombstones}) == 8
        assert {row.sweep_id for row in tombstones} == {row.sweep_id}
        assert sum(row.outcome == "exhausted" for row in tombstones) == 1
        assert len(ledger.rows("errors")) == 1
        counters = self.endpoint.attempts()
        assert counters.keys() == set(self.endpoint.waiting())
        copied = {row.message_key: row.attempts for row in ledger.rows("retries")}
        assert copied == {key: row.attempts for key, row in counters.items()}
        for table in _JOURNAL:
            assert self.endpoint.fetch(f"SELECT FROM {table}") == []


@pytest.fixture(params=WRITERS)
def dead(request: pytest.FixtureRequest, endpoint: Endpoint) -> Dead:
    """7 dispatched, 2 failed, 1 exhausted, in batches of 3. It died before it wrote to its ledger,
    which delta-rs made: that takes a tenth of Spark's time.
    """
    endpoint.set_up("Billing")

    def engine_of(writer: str) -> Engine:
        if writer == "delta-rs":
            return InProcessEngine()
        request.getfixturevalue("points_in_workers")
        return SparkEngine(request.getfixturevalue("spark"))

    dead = Dead(endpoint, request.param, engine_of)
    endpoint.delay_many(7)
    exhausted, *_ = endpoint.delay_many(3, ["Nowhere"])
    endpoint.execute(
        "INSERT INTO duesweep_attempts"
        " VALUES ($1, $2, NULL, NULL, 1, now(), now(), now(), 'x', 'x')",
        endpoint.context().store.source,
        exhausted,
    )
    dead.die("before Sweeps.close", "delta-rs", sweep__batch_rows=3, sweep__slices=1)
    return dead


POINTS = (
    "before Sweeps.close",
    "after Sweeps.close",
    "after Journal.seal",
    "after LedgerTables.write(tombstones)",
    "after LedgerTables.write(errors)",
    "after LedgerTables.write(retries)",
    "after LedgerTables.write(sweeps)",
    "before Journal.delete_settled",
    "after Journal.delete_settled",
)


@pytest.mark.parametrize("point", [None, *POINTS])
def test_dead_sweep_gets_its_row_once_wherever_a_settler_dies(
    point: str | None, dead: Dead, ledger: LedgerReader
) -> None:
    if point is not None:
        dead.die(point)

    dead.settle()

    dead.assert_settled_once(ledger)


# Each of the two needs the session.
@pytest.mark.xdist_group("spark")
@pytest.mark.on_spark
@pytest.mark.parametrize(
    "point",
    [
        "after LedgerTables.write(tombstones)",
        pytest.param("after LedgerTables.write(retries)", marks=pytest.mark.long),
        pytest.param("before Journal.delete_settled", marks=pytest.mark.long),
    ],
)
def test_what_one_writer_began_the_other_finishes(
    point: str, dead: Dead, ledger: LedgerReader
) -> None:
    (other,) = {*WRITERS} - {dead.writer}
    dead.die(point)

    dead.settle(other)

    dead.assert_settled_once(ledger)


def _exit_code(sweeping: "Future[SweepReport]") -> int:
    try:
        return exit_code_of(sweeping.result(timeout=600))
    except NothingDueError as error:
        # The other one was settling, and all is delivered.
        return exit_code_of(error)


@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("has_both", [False, True], ids=["one writer", "both writers"])
def test_two_settlers_at_once_settle_once(
    dead: Dead, ledger: LedgerReader, *, has_both: bool
) -> None:
    writers = WRITERS if has_both else (dead.writer, dead.writer)
    # The context of each, before they share a configuration file.
    contexts = [dead.endpoint.context(**_RETRY, ledger__writer=writer) for writer in writers]
    engines = [dead.engine_of(writer) for writer in writers]
    with ThreadPoolExecutor(2) as pool:
        settlers = [pool.submit(run_sweep, *each) for each in zip(contexts, engines, strict=True)]
        assert {_exit_code(each) for each in settlers} <= {0, 4}
    # One of them may have waited for the other for too long.
    dead.settle()

    dead.assert_settled_once(ledger)


@pytest.mark.usefixtures("points_in_workers")
def test_many_exhausted_messages_are_written_in_pieces_by_whoever_goes_on(
    spark: SparkSession, endpoint: Endpoint, ledger: LedgerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_journal, "_BYTES_PER_PIECE", 5_000)
    # As if the pieces were too large to share a commit.
    monkeypatch.setattr(ledger_module, "BYTES_TOGETHER", 1)
    endpoint.set_up("Billing")
    endpoint.delay()
    sizes = [1_000] * 7 + [9_000] + [1_000] * 3
    bodies = {endpoint.delay("Nowhere", body=bytes([n]) * size): n for n, size in enumerate(sizes)}
    with dying("before Sweeps.close"):
        run_sweep(endpoint, retry__max_attempts=1)

    # One after another, each killed after the first piece that it adds itself.
    for pieces, writer in enumerate(("delta-rs", "spark", "delta-rs"), start=1):
        engine = SparkEngine(spark) if writer == "spark" else None
        with dying("after LedgerTables.write(errors)", pieces):
            run_sweep(endpoint, engine, ledger__writer=writer)
    run_sweep(endpoint)

    errors = ledger.rows("errors")
    assert {row.message_key: row.body[0] for row in errors} == bodies
    assert len(errors) == len(ledger.rows("tombstones")) - 1 == len(bodies)
    assert ledger.commits("errors") > 4


def test_journal_created_anew_loses_and_doubles_nothing(dead: Dead, ledger: LedgerReader) -> None:
    dead.settle()
    endpoint = dead.endpoint
    endpoint.execute(
        "DROP TABLE duesweep_journal, duesweep_attempts, duesweep_sweeps, duesweep_bindings,"
        " duesweep_changes"
    )
    endpoint.set_up()
    endpoint.delay_many(4)

    summary = dead.settle()

    assert (summary.dispatched, summary.failed) == (4, 2)
    tombstones = ledger.rows("tombstones")
    assert len(tombstones) == len({row.message_key for row in tombstones}) == 12
    assert {row.message_key for row in ledger.rows("retries")} == set(endpoint.waiting())


@pytest.mark.on_spark
def test_restored_journal_is_settled_again_without_a_double(
    dead: Dead, ledger: LedgerReader
) -> None:
    for table in _JOURNAL:
        dead.endpoint.execute(f"CREATE TABLE saved_{table} AS TABLE {table}")
    dead.settle()
    for table in _JOURNAL:
        dead.endpoint.execute(f"INSERT INTO {table} OVERRIDING SYSTEM VALUE TABLE saved_{table}")

    dead.settle()

    dead.assert_settled_once(ledger)


def test_ledger_that_is_another_or_cannot_be_written_is_refused_before_anything_is_dispatched(
    dead: Dead, ledger: LedgerReader
) -> None:
    dead.settle()
    endpoint = dead.endpoint
    endpoint.delay()
    waiting = endpoint.waiting()
    typo = endpoint.folder / "typo"

    with pytest.raises(ConfigError, match="--rebind"):
        dead.settle(ledger__root=str(typo))
    assert not typo.exists()
    lock = ledger.root / ".duesweep.lock"
    lock.unlink()
    lock.mkdir()
    with pytest.raises(ConfigError, match="cannot be written"):
        dead.settle()
    assert endpoint.waiting() == waiting
    lock.rmdir()
    other = endpoint.named("Other").set_up()
    with pytest.raises(ConfigError, match=r"store\.name"):
        run_sweep(other, store__name=endpoint.context().store.source)


def test_counter_of_a_message_that_is_gone_goes_with_the_next_sweep(
    engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    taken, kept = endpoint.delay_many(2, ["Nowhere"])
    run_sweep(endpoint, engine)
    assert set(endpoint.attempts()) == {taken, kept}
    endpoint.execute(f"DELETE FROM {endpoint.delayed} WHERE id = $1", taken)

    run_sweep(endpoint, engine)

    assert set(endpoint.attempts()) == {kept}
    assert {row.message_key for row in ledger.rows("retries")} == {kept}
