"""The watchdog of a dispatch."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from duesweep.core.errors import StoreError
from duesweep.core.world import SettableClock
from duesweep.stores.sweeps import SweepRun
from duesweep.sweep import spark as module
from duesweep.sweep.spark import Watchdog
from duesweep.sweep.stop import Stop
from duesweep_testing.builders import DelayedRow
from duesweep_testing.memory import MemoryStore
from duesweep_testing.sweeps import open_sweep
from support.waiting import until


class Asked:
    """A store whose session returns `progress`, or raises it."""

    def __init__(self, store: MemoryStore) -> None:
        self.run = open_sweep(store)
        self.sweeps = self
        self.answer: Any = (1, 50)
        self.opened = 0
        self.asked = 0
        self.blocks: threading.Event | None = None

    @contextmanager
    def open_driver(self) -> Iterator["Asked"]:
        self.opened += 1
        yield self

    def progress(self, _: object) -> tuple[int, int]:
        self.asked += 1
        if self.blocks is not None:
            self.blocks.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: tuple[int, int] = self.answer
        return answer


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    return Asked(MemoryStore([DelayedRow()]))


@pytest.fixture
def clock() -> SettableClock:
    """The watchdog's clock, which stands still."""
    return SettableClock(1_000)


def _watchdog(asked: Asked, clock: SettableClock, cancelled: list[int]) -> Watchdog:
    run: SweepRun = asked.run
    return Watchdog(asked, run, clock, 40, lambda: cancelled.append(1))  # type: ignore[arg-type]


def test_dispatch_without_progress_is_cancelled_with_a_reason(
    asked: Asked, clock: SettableClock
) -> None:
    cancelled: list[int] = []
    with _watchdog(asked, clock, cancelled).watch() as watchdog:
        until(lambda: asked.asked > 2)
        clock.advance(39.9)
        seen = asked.asked
        until(lambda: asked.asked > seen + 2)
        assert not cancelled
        clock.advance(0.1)
        # More than once: the first may have come before there was a job.
        until(lambda: len(cancelled) > 1)

    assert str(watchdog.reason).startswith("No slice has made progress for 40 s")


def test_progress_is_waited_for_anew(asked: Asked, clock: SettableClock) -> None:
    cancelled: list[int] = []
    with _watchdog(asked, clock, cancelled).watch() as watchdog:
        for number in range(1, 5):
            clock.advance(39)
            asked.answer = (number, 100)
            seen = asked.asked
            until(lambda seen=seen: asked.asked > seen + 2)  # type: ignore[misc]

    assert (watchdog.reason, cancelled) == (None, [])


@pytest.mark.parametrize(
    "answer", [(0, 0), StoreError("too many clients", transient=True)], ids=["no batch yet", "away"]
)
def test_store_that_tells_nothing_is_no_reason_to_cancel(
    answer: Any, asked: Asked, clock: SettableClock
) -> None:
    cancelled: list[int] = []
    asked.answer = answer
    with _watchdog(asked, clock, cancelled).watch() as watchdog:
        for _ in range(3):
            seen = asked.asked
            until(lambda seen=seen: asked.asked > seen + 2)  # type: ignore[misc]
            clock.advance(400)

    assert (watchdog.reason, cancelled) == (None, [])


def test_wait_for_executors_is_told_once(
    asked: Asked, clock: SettableClock, capsys: pytest.CaptureFixture[str]
) -> None:
    logged = ""

    def is_told() -> int:
        nonlocal logged
        logged += capsys.readouterr().err
        return logged.count("the sweep waits for executors")

    asked.answer = (0, 0)
    with _watchdog(asked, clock, []).watch():
        until(lambda: asked.asked > 2)
        assert not is_told()
        # The thread may begin to measure only now.
        until(lambda: clock.advance(30) or is_told())
        clock.advance(400)
        seen = asked.asked
        until(lambda: asked.asked > seen + 2)

    assert is_told() == 1
    assert "--max-seconds" in logged


def test_stop_that_no_task_heeds_ends_the_dispatch(asked: Asked, clock: SettableClock) -> None:
    """A cluster without a free executor runs none."""
    cancelled: list[int] = []
    asked.answer = (0, 0)
    watchdog = _watchdog(asked, clock, cancelled)
    looked: list[int] = []

    class Noting(Stop):
        @property
        def is_wanted(self) -> bool:
            looked.append(1)
            return super().is_wanted

    watchdog.stop = Noting()
    watchdog.stop.ask()
    with watchdog.watch():
        until(lambda: looked)
        clock.advance(39.9)
        seen = asked.asked
        until(lambda: asked.asked > seen + 2)
        assert not cancelled
        clock.advance(40)
        until(lambda: cancelled)

    assert "whether Spark got executors" in str(watchdog.reason)


@pytest.mark.parametrize("error", [ValueError("brought"), StoreError("away", transient=True)])
def test_store_that_raises_whatever_is_asked_again(
    error: Exception, asked: Asked, clock: SettableClock
) -> None:
    cancelled: list[int] = []
    asked.answer = error
    with _watchdog(asked, clock, cancelled).watch():
        until(lambda: asked.opened > 2)
        asked.answer = (1, 1)
        seen = asked.asked
        until(lambda: asked.asked > seen + 2)
        clock.advance(39)

    assert not cancelled


def test_cancelling_that_fails_is_tried_again(asked: Asked, clock: SettableClock) -> None:
    tried: list[int] = []

    def cancel() -> None:
        tried.append(1)
        raise Py4JNetworkError

    with Watchdog(asked, asked.run, clock, 40, cancel).watch():  # type: ignore[arg-type]
        until(lambda: asked.asked > 2)
        clock.advance(40)
        until(lambda: len(tried) > 1)


def test_watchdog_does_not_wait_for_a_store_that_never_answers(
    asked: Asked, clock: SettableClock
) -> None:
    cancelled: list[int] = []
    blocks = threading.Event()
    with _watchdog(asked, clock, cancelled).watch():
        until(lambda: asked.asked > 2)
        asked.blocks = blocks
        clock.advance(40)
        until(lambda: cancelled)
    blocks.set()
