"""When a sweep is to stop, and how its store gets to know."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from duesweep.core.world import SettableClock
from duesweep.errors import ConfigError, StoreError
from duesweep.stores.values import SweepRun
from duesweep.sweep import stop as module
from duesweep.sweep.stop import Stop
from duesweep_testing.memory import MemoryStore
from duesweep_testing.sweeps import open_sweep
from support.waiting import until


class _Stoppable:
    """A store and its driver's session, which notes when a sweep is to stop."""

    source = "nsb"

    def __init__(self) -> None:
        self.run = open_sweep(MemoryStore())
        self.told: list[float] = []
        self.tried = 0
        self.error: Exception | None = None

    @contextmanager
    def open_driver(self) -> Iterator["_Stoppable"]:
        self.tried += 1
        if self.error is not None:
            raise self.error
        yield self

    def stop_sweep(self, sweep_id: object, after_seconds: float) -> None:
        assert sweep_id == self.run.sweep_id
        self.told.append(after_seconds)

    def passed_on(self, stop: Stop) -> Any:
        return stop.passed_on(self, self, self.run)  # type: ignore[arg-type]


class _Unstoppable:
    source = "acme"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> _Stoppable:
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.01)
    return _Stoppable()


def test_sweep_that_nobody_stops_tells_its_store_nothing(store: _Stoppable) -> None:
    stop = Stop()

    with store.passed_on(stop):
        pass

    assert (stop.is_wanted, store.told, store.tried) == (False, [], 0)


def test_time_limit_is_told_at_once_as_what_is_left_of_it(store: _Stoppable) -> None:
    stop = Stop(time.time() + 100)

    with store.passed_on(stop):
        (seconds,) = store.told

    assert 90 < seconds <= 100
    assert not stop.is_wanted


@pytest.mark.parametrize("stop", [Stop(time.time() - 1), Stop()])
def test_stop_that_is_wanted_already_is_told_before_the_block_begins(
    stop: Stop, store: _Stoppable
) -> None:
    stop.ask()

    with store.passed_on(stop):
        assert store.told[0] == 0

    assert stop.is_wanted


def test_time_that_is_over_is_a_stop() -> None:
    assert Stop(time.time() - 1).is_wanted


def test_stop_is_passed_on_while_the_block_waits_for_something(store: _Stoppable) -> None:
    stop = Stop()

    with store.passed_on(stop):
        threading.Timer(0.01, stop.ask).start()
        until(lambda: store.told, seconds=10)

    assert store.told == [0]


def test_store_that_is_out_of_reach_is_told_later(store: _Stoppable) -> None:
    stop = Stop()
    store.error = StoreError("no server answers", transient=True)

    with store.passed_on(stop):
        stop.ask()
        until(lambda: store.tried > 2, seconds=10)
        store.error = None
        until(lambda: store.told, seconds=10)

    assert store.told == [0]


def test_store_that_cannot_stop_a_sweep_leaves_signals_as_they_are() -> None:
    stop, run = Stop(), open_sweep(MemoryStore())

    stop.check(_Unstoppable())  # type: ignore[arg-type]
    with _passed_on_nothing(stop, run):
        stop.ask()

    assert not stop.is_possible


def test_store_that_cannot_stop_a_sweep_refuses_a_time_limit() -> None:
    with pytest.raises(ConfigError, match="acme cannot stop a sweep before its end"):
        Stop(time.time() + 100).check(_Unstoppable())  # type: ignore[arg-type]


def test_store_that_can_keeps_it_possible(store: _Stoppable) -> None:
    stop = Stop(time.time() + 100)

    stop.check(store)  # type: ignore[arg-type]

    assert stop.is_possible


class _AskingClock(SettableClock):
    """Asks for a stop at the third nap."""

    stop: Stop

    def __init__(self) -> None:
        super().__init__()
        self.naps: list[float] = []

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.naps.append(seconds)
        if len(self.naps) == 3:
            self.stop.ask()


def test_wait_ends_when_the_stop_is_asked_for() -> None:
    clock = _AskingClock()
    clock.stop = Stop(clock=clock)

    clock.stop.wait(3_600)

    assert clock.naps == [0.2] * 3


def test_part_has_a_time_of_its_own_and_is_stopped_with_the_whole() -> None:
    whole = Stop()
    part, over = whole.part(most=2), whole.part(at=time.time() - 1)

    assert (part.is_wanted, over.is_wanted, whole.is_wanted) == (False, True, False)
    assert part.shares([5]) == (2,)
    assert Stop(time.time() - 1).part(at=time.time() + 3_600).is_wanted
    whole.ask()
    assert part.is_wanted


def test_first_slices_which_have_the_oldest_messages_get_all_that_a_sweep_may_claim() -> None:
    part = Stop().part(most=5)

    assert part.shares([3, 4, 2]) == (3, 2, 0)
    assert part.shares([3, 2]) is None


def _passed_on_nothing(stop: Stop, run: SweepRun) -> Any:
    return stop.passed_on(object(), _Unstoppable(), run)  # type: ignore[arg-type]
