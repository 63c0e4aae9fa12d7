"""A sweep in process: two sessions at once for many messages, and the work of one if the other
one ends in another way.
"""

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from duesweep.core.account import SweepReport
from duesweep.core.errors import (
    ConfigError,
    DestinationError,
    DuesweepError,
    ExitCode,
    LedgerError,
    StoreError,
)
from duesweep.core.message import Message
from duesweep.core.policy import BatchSize, BreakerTimes
from duesweep.core.result import exit_code_of
from duesweep.sweep.claim_keys import ClaimKeys
from duesweep.sweep.slice import Slice
from duesweep.sweep.stop import Stop
from duesweep_testing.builders import delayed_row
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_queue import MemoryQueue
from duesweep_testing.memory_sessions import MemoryTaskSession
from duesweep_testing.sweeps import context_of
from support.sweeps import run_sweep
from support.waiting import until

_ROWS = 2
# Several batches, and an odd number of messages.
_MUCH = 5 * _ROWS + 1
_HELD_SECONDS = 30


class _Store(MemoryStore):
    """Notes in which thread each session was opened. `lost` are threads whose sessions fail."""

    def __init__(self, count: int, resting: int) -> None:
        rests = [delayed_row("Shipping") for _ in range(resting)]
        super().__init__([*rests, *(delayed_row() for _ in range(count))])
        self.opened: list[str] = []
        self.lost: set[str] = set()

    @contextmanager
    def open_task(self) -> Iterator[MemoryTaskSession]:
        self.opened.append(_thread())
        # The first session looks whether queues are missing.
        if len(self.opened) > 1 and _thread() in self.lost:
            raise StoreError("The store is out of reach", transient=True)
        yield MemoryTaskSession(self)


class _World:
    """Messages, and sweeps of them. `at` has for each thread the event at its first message: the
    function runs when both sessions hold a message.
    """

    def __init__(self, count: int = 4 * _MUCH, resting: int = 0) -> None:
        self.store = _Store(count, resting)
        self.queue = MemoryQueue("Billing", "Shipping")
        self.queue.trouble["Shipping"] = lambda _: DestinationError("it rests")
        self.at: dict[str, Callable[[], DuesweepError | None]] = {}
        self._both = threading.Barrier(2)
        self._met: set[str] = set()
        self.context = context_of(
            self.store,
            self.queue,
            self.store.clock,
            batch_size=BatchSize(rows=_ROWS),
            breaker=BreakerTimes(trigger_seconds=0),
        )

    def at_once(self, **at: Callable[[], DuesweepError | None]) -> None:
        self.at, self.queue.trouble["Billing"] = at, self._meet

    def _meet(self, _: Message) -> DuesweepError | None:
        if _thread() in self._met or len(self._met) == 2:
            return None
        self._both.wait(_HELD_SECONDS)
        self._met.add(_thread())
        action = self.at.get(_thread())
        return None if action is None else action()

    def sweep(self, **settings: Any) -> SweepReport:
        return run_sweep(self.context, **settings)

    @property
    def arrived(self) -> int:
        return len(self.queue.arrived["Billing"])

    def sweep_the_rest(self) -> None:
        """Another sweep takes the rest: each message arrives once."""
        waiting, before = len(self.store.rows), self.arrived
        self.queue.trouble.clear()
        self.store.lost.clear()

        assert self.sweep().outcome == "done"

        assert self.store.rows == {}
        assert self.arrived == before + waiting


def _thread() -> str:
    """`first` or `second`: which of the two sessions; `main`: the sweeping thread, which waits."""
    _, _, session = threading.current_thread().name.partition(", session ")
    return {"": "main", "1": "first", "2": "second"}[session]


def _fail(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("count", "slices", "opened"),
    [(_ROWS, 0, ["first"]), (_ROWS + 1, 0, ["first", "second"]), (_MUCH, 1, ["first"])],
    ids=["a batch is due", "more is due", "one slice is wanted"],
)
def test_second_session_is_opened_only_where_more_than_a_batch_is_due(
    count: int, slices: int, opened: list[str]
) -> None:
    world = _World(count)
    if len(opened) > 1:
        # Else the second one could get the session of the first one, which has ended.
        world.at_once()

    report = run_sweep(replace(world.context, slices=slices))

    # The first one looks whether queues are missing.
    assert sorted(world.store.opened[1:]) == opened
    assert report.found == report.dispatched == count


def test_two_sessions_work_at_once_and_their_accounts_add_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, stop = _World(), Stop()
    before, called = gc.get_threshold(), set()
    monkeypatch.setattr(stop.waits, "progressed", lambda: called.add(_thread()))
    world.at_once()

    report = world.sweep(stop=stop)

    assert report.outcome == "done"
    assert report.found == report.claimed == report.dispatched == world.arrived == 4 * _MUCH
    assert called == {"first", "second"}
    assert gc.get_threshold() == before


def _slices() -> list[object]:
    return [one for one in gc.get_objects() if isinstance(one, (ClaimKeys, Slice))]


def test_no_slice_outlives_its_work() -> None:
    """Its keys may take 50 MB; in a circle they stay until all memory is looked through."""
    world = _World()
    gc.collect()
    # Of other tests.
    before = _slices()
    gc.disable()
    try:
        report = world.sweep()
        left = _slices()
    finally:
        gc.enable()

    assert report.dispatched == 4 * _MUCH
    assert [one for one in left if all(one is not other for other in before)] == []


@pytest.mark.parametrize("thread", ["first", "second"])
def test_other_session_does_the_rest_after_an_unforeseen_error(thread: str) -> None:
    world = _World()
    world.at_once(**{thread: _fail(ZeroDivisionError("nobody foresaw it"))})

    report = world.sweep()

    assert (report.outcome, report.dispatched) == ("incomplete", 4 * _MUCH - _ROWS)
    assert "ZeroDivisionError: nobody foresaw it" in str(report.reason)
    world.sweep_the_rest()


@pytest.mark.parametrize("thread", ["first", "second"])
def test_what_a_session_did_before_an_unforeseen_error_counts(thread: str) -> None:
    world = _World(resting=_ROWS)
    world.at_once(**{thread: _fail(ZeroDivisionError("nobody foresaw it"))})

    report = world.sweep()

    assert (report.dispatched, report.left) == (4 * _MUCH - _ROWS, 2 * _ROWS)
    assert [(one.name, one.left) for one in report.breakers] == [("Shipping", _ROWS)]


@pytest.mark.parametrize("thread", ["first", "second"])
def test_other_session_does_all_where_one_fails(thread: str) -> None:
    world = _World()
    world.store.lost = {thread}

    report = world.sweep()

    assert (report.outcome, report.dispatched) == ("done", 4 * _MUCH)
    assert (report.found, report.reason) == (4 * _MUCH, "The store is out of reach")


@pytest.mark.parametrize("thread", ["first", "second"])
def test_error_that_ends_a_sweep_is_raised_from_either_thread(thread: str) -> None:
    world = _World()
    world.at_once(**{thread: lambda: LedgerError("no slice writes one", transient=False)})

    with pytest.raises(LedgerError, match="no slice writes one"):
        world.sweep()

    _await_threads()
    world.sweep_the_rest()


def test_stop_ends_both_sessions_after_their_batches_in_hand() -> None:
    world, stop = _World(), Stop()

    def ask() -> None:
        stop.ask()
        until(lambda: any(each.stop_at for each in world.store.sweeps.values()))

    world.at_once(first=ask, second=ask)

    report = world.sweep(stop=stop)

    assert (report.outcome, report.dispatched) == ("stopped", 2 * _ROWS)
    assert report.dispatched + report.left == report.found == 4 * _MUCH
    world.sweep_the_rest()


def test_sweep_may_claim_so_many_messages_with_two_sessions_too() -> None:
    world = _World()

    report = world.sweep(stop=Stop(most=5))

    assert (report.outcome, report.dispatched, report.left) == ("stopped", 5, 4 * _MUCH - 5)


def test_interrupted_sweep_ends_at_once_and_its_sessions_after_their_batches_in_hand() -> None:
    world, goes_on = _World(), threading.Event()

    def hold() -> None:
        goes_on.wait(_HELD_SECONDS)

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        hold()

    world.at_once(first=interrupt, second=hold)

    with pytest.raises(KeyboardInterrupt):
        world.sweep()

    assert world.arrived == 0
    goes_on.set()
    _await_threads()
    assert world.arrived == 2 * _ROWS
    world.sweep_the_rest()


def _await_threads() -> None:
    until(lambda: not [one for one in threading.enumerate() if "duesweep slice" in one.name])


def test_error_of_configuration_in_a_slice_ends_with_2_and_its_text() -> None:
    world = _World()
    wrong = ConfigError("the password was changed")
    world.queue.trouble["Billing"] = lambda _: wrong

    report = world.sweep()

    assert exit_code_of(report) == ExitCode.CONFIGURATION
    assert (report.outcome, report.reason) == ("incomplete", str(wrong))
    assert report.left == len(world.store.rows) == 4 * _MUCH
