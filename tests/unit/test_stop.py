"""When a sweep is to stop, how its store gets to know, and the work of its slices after that."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import compress
from typing import Any

import pytest

from duesweep.core.account import BreakerReport
from duesweep.core.errors import (
    DestinationError,
    DuesweepError,
    QueueNotFoundError,
    StoreError,
    TransactionLostError,
)
from duesweep.core.message import Message
from duesweep.core.policy import CLAIM_SECONDS, BatchSize
from duesweep.core.world import SettableClock
from duesweep.sweep.stop import Stop
from duesweep_testing.builders import DelayedRow, delayed_row
from duesweep_testing.journal import SliceEntry
from duesweep_testing.memory import MemoryStore
from duesweep_testing.sweeps import open_sweep, stop_sweep
from support.contract.memory_stores import MovingStore
from support.dispatch_world import World, one, slice_end, world_of
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

    @property
    def sweeps(self) -> "_Stoppable":
        return self

    def stop(self, sweep_id: object, after_seconds: float) -> None:
        assert sweep_id == self.run.sweep_id
        self.told.append(after_seconds)

    def passed_on(self, stop: Stop) -> Any:
        return stop.passed_on(self, self, self.run)  # type: ignore[arg-type]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> _Stoppable:
    monkeypatch.setattr("duesweep.sweep.stop._POLL_SECONDS", 0.01)
    return _Stoppable()


@pytest.mark.parametrize(
    ("limit", "is_asked", "told"),
    [
        pytest.param(None, False, None, id="nobody stops it"),
        pytest.param(100, False, 100, id="a limit that is ahead"),
        pytest.param(-1, False, 0, id="a limit that is over"),
        pytest.param(None, True, 0, id="it was asked for"),
    ],
)
def test_store_is_told_before_the_block_begins(
    limit: float | None, told: float | None, store: _Stoppable, *, is_asked: bool
) -> None:
    stop = Stop(None if limit is None else time.time() + limit)
    if is_asked:
        stop.ask()

    with store.passed_on(stop):
        assert store.told[:1] == ([] if told is None else [pytest.approx(told, abs=10)])

    assert stop.is_wanted is (told == 0)
    assert store.tried == 0 or store.told


def test_stop_is_passed_on_while_the_block_waits_and_when_the_store_is_in_reach(
    store: _Stoppable,
) -> None:
    stop = Stop()
    store.error = StoreError("no server answers", transient=True)

    with store.passed_on(stop):
        threading.Timer(0.01, stop.ask).start()
        until(lambda: store.tried > 2, seconds=10)
        store.error = None
        until(lambda: store.told, seconds=10)

    assert store.told == [0]


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
    part, over = whole.part(most=2), whole.part(lasting=0)

    assert not over.is_wanted
    assert (part.begin(), over.begin()) == (None, 0)
    assert (part.is_wanted, over.is_wanted, whole.is_wanted) == (False, True, False)
    assert part.shares([5]) == (2,)
    assert Stop(time.time() - 1).part(lasting=3_600).begin() == 0
    whole.ask()
    assert part.is_wanted


def test_first_slices_which_have_the_oldest_messages_get_all_that_a_sweep_may_claim() -> None:
    part = Stop().part(most=5)

    assert part.shares([3, 4, 2]) == (3, 2, 0)
    assert part.shares([3, 2]) is None


_TWO = BatchSize(rows=2)
# At which message's delivery the sweep is stopped (None: before its first batch), that message's
# error, and the outcome of all: `+` arrives, `x` fails, `.` is left.
_STOPS: dict[str, tuple[int | None, DuesweepError | None, str, SliceEntry]] = {
    "the current batch is finished": (2, None, "++++...", slice_end(given=7, claimed=4, left=3)),
    "none has begun": (None, None, ".....", slice_end(given=5, left=5)),
    "its transaction is lost": (0, TransactionLostError("lock"), "...", slice_end(given=3, left=3)),
    "its failures count": (
        *(0, QueueNotFoundError("There is none"), "x+."),
        slice_end(given=3, claimed=2, left=1),
    ),
    "a destination takes nothing": (
        *(0, DestinationError("It is locked"), "...."),
        slice_end("It is locked", given=4, left=4),
    ),
}


def _moving(*rows: DelayedRow) -> World:
    return World(MovingStore(*rows))


@pytest.mark.parametrize("form", [world_of, _moving], ids=["careful", "moved"])
@pytest.mark.parametrize("case", _STOPS)
def test_slice_ends_after_the_batch_in_hand(case: str, form: Callable[..., World]) -> None:
    stop_at, error, becomes, end = _STOPS[case]
    if form is _moving and error is not None:
        # A batch that is given up there would be run again in the careful form.
        becomes, end = "." * len(becomes), slice_end(given=len(becomes), left=len(becomes))
    rows = [delayed_row() for _ in becomes]
    world = form(*rows)
    run = open_sweep(world.store)

    def stop(message: Message) -> DuesweepError | None:
        if stop_at is None or message.key != rows[stop_at].key:
            return None
        stop_sweep(world.store, run, 0)
        return error

    world.queue.trouble["Billing"] = stop
    if stop_at is None:
        stop_sweep(world.store, run, 0)

    world.run_slice(run, batch_size=_TWO)

    arrived = list(compress(rows, [sign == "+" for sign in becomes]))
    assert world.queue.arrived["Billing"] == [one(row) for row in arrived]
    assert set(world.store.rows) == {row.key for row in rows} - {row.key for row in arrived}
    assert world.counted(run) == (becomes.count("+"), becomes.count("x"))
    assert world.ends(run) == [end]
    assert world.store.holders == {}


def test_messages_that_a_batch_released_are_left() -> None:
    first, late, other = (delayed_row(name) for name in ("Billing", "Shipping", "Billing"))
    world = world_of(first, late, other)
    run = open_sweep(world.store)

    def stop_and_take_long(_: Message) -> None:
        stop_sweep(world.store, run, 0)
        world.clock.advance(CLAIM_SECONDS + 1)

    world.queue.trouble["Billing"] = stop_and_take_long

    world.run_slice(run, batch_size=_TWO)

    assert world.queue.arrived["Billing"] == [one(first)]
    assert world.ends(run) == [slice_end(given=3, claimed=1, left=2)]


def test_rest_between_rounds_ends_with_a_stop_that_is_asked_for() -> None:
    world = world_of(delayed_row(), delayed_row())
    stop, stop_at = Stop(clock=world.clock), 15.5
    wait = world.clock.sleep

    def sleep(seconds: float) -> None:
        wait(seconds)
        if world.clock.seconds() >= stop_at:
            stop.ask()

    world.trouble("Billing", DestinationError("Billing is locked"))
    world.clock.sleep = sleep  # type: ignore[method-assign]

    report = world.rounds(stop)

    assert (report.found, report.left, report.reason) == (2, 2, "Billing is locked")
    assert [one.state for one in report.breakers] == ["open"]
    assert stop_at <= world.clock.seconds() <= stop_at + 1


def test_stop_while_a_destination_is_tried_leaves_the_rest_of_its_batch() -> None:
    world = world_of(*[delayed_row() for _ in range(5)])
    outage = BreakerReport("Billing", "open", "2026-11-01T08:00:00+00:00", 1.0, 5, "it was locked")
    run = open_sweep(world.store)
    stop_sweep(world.store, run, 0)

    world.run_slice(run, outages=(outage,), batch_size=BatchSize(rows=3))

    assert world.ends(run) == [slice_end("it was locked", given=5, left=5)]
