"""A watcher's ledger is written while it delivers: no message waits for it."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from duesweep.core.errors import ConfigError, LedgerError, StoreError
from duesweep.core.policy import LedgerWriter
from duesweep.ledger.base import LedgerPiece
from duesweep.operations.run import Run
from duesweep.operations.watch import Ticker
from duesweep.sweep.stop import Stop
from duesweep_testing.builders import delayed_row
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_driver import MemoryJournal
from duesweep_testing.memory_ledger import MemoryTables
from support.dispatch_world import World
from support.waiting import until


class _Tables(MemoryTables):
    """Each write waits until they are open, and may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = threading.Event()
        self.is_open.set()
        self.error: LedgerError | None = None

    def write(self, pieces: Sequence[LedgerPiece]) -> None:
        assert self.is_open.wait(60)
        if self.error is not None:
            raise self.error
        super().write(pieces)

    def keys(self) -> list[str]:
        table = self.tables.get("tombstones")
        return [] if table is None else [row["message_key"] for row in table.rows]


class _Watched:
    """A store, and its watcher."""

    def __init__(self) -> None:
        self.world, self.tables = World(MemoryStore()), _Tables()
        self.stored: list[str] = []
        context = self.world.context(spark_from=None, ledger_writer=LedgerWriter.DELTA_RS)
        context = replace(context, tables=self.tables)
        self.stop = Stop(clock=self.world.clock)
        self.ticker = Ticker(context, self.stop, has_spark=False)

    def store(self) -> None:
        row = delayed_row("Billing")
        self.world.store.rows[row.key] = row
        self.stored.append(row.key)

    def deliver(self) -> Run:
        """Store a message, and tick."""
        self.store()
        return self.ticker.tick()

    @property
    def arrived(self) -> int:
        return len(self.world.queue.arrived["Billing"])


@contextmanager
def _watched() -> Iterator[_Watched]:
    watched = _Watched()
    try:
        yield watched
    finally:
        watched.tables.is_open.set()
        watched.ticker.close()


def test_messages_wait_for_no_ledger_and_the_end_for_all_of_it() -> None:
    with _watched() as watched:
        watched.deliver()
        until(lambda: watched.tables.keys() == watched.stored)
        watched.tables.is_open.clear()
        reports = [watched.deliver().report for _ in range(3)]

        assert [report and report.dispatched for report in reports] == [1, 1, 1]
        assert (watched.arrived, len(watched.tables.keys())) == (4, 1)

    assert sorted(watched.tables.keys()) == sorted(watched.stored)
    assert watched.world.store.sweeps == {}


def test_ledger_that_cannot_be_written_is_reported_until_it_can() -> None:
    with _watched() as watched:
        watched.deliver()
        watched.tables.error = LedgerError("the disk is full", transient=True)
        watched.deliver()
        until(lambda: watched.ticker.tick().error == "the disk is full")
        idle = watched.ticker.tick()
        report = watched.deliver().report

        assert (idle.outcome, idle.exit_code, watched.arrived) == ("idle", 4, 3)
        assert report is not None
        assert report.ledger_error == "the disk is full"
        watched.tables.error = None
        until(lambda: watched.ticker.tick().error is None)
        assert sorted(watched.tables.keys()) == sorted(watched.stored)


def test_journal_that_cannot_be_read_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with _watched() as watched:
        watched.deliver()
        until(lambda: watched.tables.keys() == watched.stored)
        monkeypatch.setattr(MemoryJournal, "seal", _time_out)
        watched.deliver()

        until(lambda: watched.ticker.tick().exit_code == 4)
        assert watched.ticker.tick().error == "The journal cannot be settled: it took too long"
        monkeypatch.undo()
        until(lambda: watched.ticker.tick().error is None)


def _time_out(*_: object) -> None:
    raise StoreError("it took too long", transient=True)


def test_nothing_is_delivered_once_the_ledger_is_gone() -> None:
    with _watched() as watched:
        watched.deliver()
        until(lambda: watched.tables.keys() == watched.stored)
        watched.tables.tables.clear()
        watched.deliver()
        # Also if nothing is due.
        until(lambda: _is_refused(watched.ticker))

        with pytest.raises(ConfigError, match="no ledger is at memory"):
            watched.deliver()
        assert watched.arrived == 2


def _is_refused(ticker: Ticker) -> bool:
    try:
        ticker.tick()
    except ConfigError:
        return True
    return False


def test_journal_is_bounded_while_the_ledger_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("duesweep.sweep.settle.MOST_UNSETTLED_MESSAGES", 2)
    monkeypatch.setattr("duesweep.core.world.LONG_SECONDS", 0.2)
    with _watched() as watched:
        watched.deliver()
        until(lambda: watched.tables.keys() == watched.stored)
        watched.tables.is_open.clear()
        watched.deliver()
        watched.deliver()

        until(watched.stop.waits.long)

        with pytest.raises(
            LedgerError, match=r"has not answered yet\. The journal of memory is full"
        ):
            watched.deliver()
        assert watched.arrived == 3


def test_nothing_is_delivered_once_the_journal_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duesweep.sweep.settle.MOST_UNSETTLED_MESSAGES", 1)
    with _watched() as watched:
        watched.deliver()
        until(lambda: watched.tables.keys() == watched.stored)
        watched.tables.error = LedgerError("the disk is full", transient=True)
        watched.deliver()
        until(lambda: watched.ticker.tick().error == "the disk is full")

        with pytest.raises(LedgerError, match="The journal of memory is full"):
            watched.deliver()
        assert watched.arrived == 2
        watched.tables.error = None
        until(lambda: watched.tables.keys() == watched.stored[:2])

        def has_moved() -> bool:
            # The journal forgets the rows soon after the ledger has them.
            with suppress(LedgerError):
                return watched.ticker.tick().has_moved
            return False

        until(has_moved)
        assert watched.arrived == 3
