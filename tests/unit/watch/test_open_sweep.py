"""A watcher's sweep stays open for messages that come due."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import NoReturn

import pytest

from duesweep.core.account import MOST_REPORTED
from duesweep.core.errors import DestinationError, ExitCode, StoreError
from duesweep.core.policy import BatchSize, RateLimit, RateLimits, Slicing
from duesweep.core.world import STORAGE, Clock, SettableClock
from duesweep.operations.health import Health
from duesweep.operations.run import Run
from duesweep.operations.watch import Ticker, watch
from duesweep.stores.due import Horizon, Slices, Work
from duesweep.sweep.job import SweepContext
from duesweep.sweep.stop import Stop
from duesweep_testing.builders import DelayedRow, delayed_row
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_driver import MemoryDue
from duesweep_testing.memory_queue import MemoryQueue
from duesweep_testing.memory_sessions import MemoryTaskSession
from support.dispatch_world import World


class _Clock(SettableClock):
    """Calls something at given times."""

    def __init__(self) -> None:
        super().__init__()
        self.events: dict[float, Callable[[], object]] = {}

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        for at in [at for at in self.events if at <= self.seconds()]:
            self.events.pop(at)()


def _world(*due_in: float) -> tuple[World, _Clock]:
    clock = _Clock()
    store = MemoryStore(clock=clock)
    world = World(store, clock=clock)
    for seconds in due_in:
        _store(world, seconds)
    return world, clock


def _store(world: World, due_in: float, queue: str = "Billing") -> DelayedRow:
    row = delayed_row(queue, due=world.store.now + timedelta(seconds=due_in))
    world.store.rows[row.key] = row
    return row


@pytest.fixture(autouse=True)
def opened() -> Iterator[None]:
    """Each ticker ends with its test: its settler would work on while the next one runs."""
    yield
    while _opened:
        _opened.pop().close()


_opened: list[Ticker] = []


def _open(context: SweepContext, stop: Stop) -> Ticker:
    _opened.append(Ticker(context, stop, has_spark=False))
    return _opened[-1]


def _ticker(world: World) -> Ticker:
    return _open(world.context(spark_from=None), Stop(clock=world.clock))


class _Until(Stop):
    """Is wanted after the first run that found nothing to do."""

    def __init__(self, clock: _Clock, runs: Sequence[Run]) -> None:
        super().__init__(clock=clock)
        self._runs = runs

    def wait(self, seconds: float) -> None:
        super().wait(seconds)
        if self._runs and self._runs[-1].outcome == "idle":
            self.ask()


def _sweeps(run: Run) -> tuple[int, int]:
    assert run.report is not None
    return len(run.report.sweep_ids), run.report.dispatched


def test_messages_that_come_due_soon_go_in_the_same_sweep_and_in_time() -> None:
    world, clock = _world(-1, 0.5, 1.2, 3.5)
    arrived: list[float] = []
    world.queue.trouble["Billing"] = lambda _: arrived.append(clock.seconds())

    run = _ticker(world).tick()

    assert _sweeps(run) == (1, 3)
    assert arrived == pytest.approx([0, 0.5, 1.2], abs=0.021)
    # Nothing came due for a second.
    assert clock.seconds() == pytest.approx(2.2, abs=0.2)


def test_message_that_is_stored_meanwhile_with_an_earlier_due_goes_within_100_ms() -> None:
    world, clock = _world(-1, 0.9)
    clock.events[0.35] = lambda: _store(world, -60)
    arrived: list[float] = []
    world.queue.trouble["Billing"] = lambda _: arrived.append(clock.seconds())

    run = _ticker(world).tick()

    assert _sweeps(run) == (1, 3)
    assert arrived == pytest.approx([0, 0.4, 0.9], abs=0.05)


class _Middle(Random):
    def random(self) -> float:
        return 0.5


def test_ledger_gets_a_sweep_for_ten_seconds_of_steady_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("duesweep.core.world.World.chance", lambda _: _Middle())
    world, clock = _world(*(0.1 * number for number in range(-1, 250)))
    runs: list[Run] = []

    watch("memory", _ticker(world).tick, _Until(clock, runs), [runs.append], most_seconds=0.1)

    assert [_sweeps(run)[0] for run in runs if run.report] == [1, 1, 1]
    assert [_sweeps(run)[1] for run in runs if run.report] == pytest.approx([101, 101, 49], abs=3)


def test_sweeps_of_a_fleet_do_not_end_at_the_same_time() -> None:
    ends = set[float]()
    for _ in range(5):
        world, clock = _world(*(0.1 * number for number in range(-1, 250)))
        _ticker(world).tick()
        ends.add(round(clock.seconds()))

    assert len(ends) > 1
    assert 5 <= min(ends) <= max(ends) <= 16


def test_sweep_goes_on_beside_an_outage_until_what_it_left_is_tried_again() -> None:
    world, clock = _world(-1, 0.9, 1.4)
    for seconds in (0.5, 0.8, 1.1):
        _store(world, seconds, "Shipping")
    tried: list[float] = []
    arrived: list[float] = []

    def locked(_: object) -> DestinationError:
        tried.append(clock.seconds())
        return DestinationError("Shipping is locked")

    world.queue.trouble["Shipping"] = locked
    world.queue.trouble["Billing"] = lambda _: arrived.append(clock.seconds())

    run = _ticker(world).tick()

    assert arrived == pytest.approx([0, 0.9, 1.4], abs=0.03)
    assert (tried, clock.seconds()) == (pytest.approx([0.5], abs=0.03), pytest.approx(1.5, abs=0.1))
    assert run.report is not None
    assert (run.report.dispatched, run.report.left, run.report.found) == (3, 3, 6)
    assert (run.outcome, run.exit_code) == ("incomplete", ExitCode.WORK_LEFT)


def test_sweep_continues_during_an_outage_of_more_destinations_than_a_report_has() -> None:
    clock = _Clock()
    locked = [f"Locked{number}" for number in range(MOST_REPORTED + 1)]
    queue = MemoryQueue("Billing", *locked)
    world = World(MemoryStore(clock=clock), queue=queue, clock=clock)
    for name in locked:
        world.queue.trouble[name] = lambda _: DestinationError("locked")
        _store(world, -1, name)
    for seconds in (0.3, 0.6):
        _store(world, seconds)

    run = _ticker(world).tick()

    assert _sweeps(run) == (1, 2)
    assert run.report is not None
    assert (run.report.left, len(run.report.breakers)) == (len(locked), MOST_REPORTED)


def test_sweep_ends_when_a_round_leaves_messages_that_others_hold() -> None:
    world, clock = _world(-1, 0.5, 0.9)
    held = _store(world, 0.5)
    world.store.holders[held.key] = object()

    run = _ticker(world).tick()

    assert _sweeps(run) == (1, 2)
    assert run.report is not None
    assert (run.report.skipped, clock.seconds()) == (1, pytest.approx(0.5, abs=0.03))


def _limited(per_second: float, *others: RateLimit) -> tuple[World, Ticker, Stop]:
    """A watcher by the real clock, of a world whose three messages for Shipping have a limit."""
    clock, stop = Clock(), Stop()
    world = World(MemoryStore(clock=clock), clock=clock)
    for _ in range(3):
        _store(world, -1, "Shipping")
    limits = RateLimits((RateLimit("Shipping", per_second), *others))
    context = replace(world.context(spark_from=None), rate_limits=limits)
    return world, _open(context, stop), stop


def test_other_messages_do_not_wait_for_a_limit() -> None:
    world, ticker, stop = _limited(per_second=0.05)

    def store_another(_: object) -> None:
        del world.queue.trouble["Shipping"]
        _store(world, 0)

    world.queue.trouble["Shipping"] = store_another
    world.queue.trouble["Billing"] = lambda _: stop.ask()

    run = ticker.tick()
    ticker.close()

    arrived = {name: len(queue) for name, queue in world.queue.arrived.items() if queue}
    assert arrived == {"Shipping": 1, "Billing": 1}
    report = run.report
    assert report is not None
    assert (report.found, report.claimed, report.left, report.outcome) == (4, 2, 2, "stopped")
    assert len(report.sweep_ids) == 1


def test_limit_of_few_messages_is_used_up_by_sweeps_that_end_before_the_next_one_may_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("duesweep.sweep.open_sweep.OPEN_SECONDS", 0.2)
    world, ticker, _ = _limited(per_second=2)

    runs = []
    while world.store.rows and len(runs) < 30:
        runs.append(ticker.tick())
    ticker.close()

    reports = [run.report for run in runs if run.report is not None]
    assert len(world.queue.arrived["Shipping"]) == 3
    # With a new reservation in each sweep none would ever be used.
    assert len(reports) < 12


def test_earlier_message_is_found_soon_after_others_have_waited_for_a_limit() -> None:
    world, ticker, stop = _limited(per_second=10)
    clock = world.store.clock
    stored_at: list[float] = []

    def count(_: object) -> None:
        if len(world.queue.arrived["Shipping"]) == 2:
            # The last one.
            _store(world, -30)
            stored_at.append(clock.seconds())

    def arrive(_: object) -> None:
        stored_at.append(clock.seconds())
        stop.ask()

    world.queue.trouble["Shipping"] = count
    world.queue.trouble["Billing"] = arrive

    ticker.tick()
    ticker.close()

    assert len(world.queue.arrived["Billing"]) == 1
    stored, arrived = stored_at
    # Long before the sweep would have ended.
    assert arrived - stored < 5


def test_messages_that_wait_for_a_limit_do_not_hide_that_others_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, ticker, stop = _limited(per_second=5)
    progress: list[None] = []
    monkeypatch.setattr(stop.waits, "progressed", lambda: progress.append(None))

    ticker.tick()
    ticker.close()

    assert (len(world.queue.arrived["Shipping"]), progress) == (3, [])


def test_few_sessions_wait_for_limits_while_messages_keep_coming_due() -> None:
    world, ticker, stop = _limited(per_second=0.05)
    opened = world.store.open_task
    sessions: list[MemoryTaskSession] = []

    @contextmanager
    def open_task() -> Iterator[MemoryTaskSession]:
        with opened() as session:
            sessions.append(session)
            yield session

    def store_others(_: object) -> None:
        if len(world.queue.arrived["Billing"]) == 20:
            stop.ask()
        _store(world, 0)
        _store(world, 0, "Shipping")

    world.store.open_task = open_task  # type: ignore[method-assign]
    world.queue.trouble["Billing"] = store_others
    _store(world, -1)

    run = ticker.tick()
    ticker.close()

    # Of three slices at most, two each.
    assert len(sessions) <= 6
    assert run.report is not None
    assert run.report.left >= 19


def test_messages_that_wait_for_a_slow_limit_do_not_hold_up_others_with_a_limit() -> None:
    world, ticker, stop = _limited(0.05, RateLimit("Billing", 20))
    clock = world.store.clock
    stored_at: list[float] = []
    arrived_at: list[float] = []

    def store_another(_: object) -> None:
        _store(world, 0, "Shipping")
        if len(stored_at) < 4:
            _store(world, 0, "error")
        else:
            _store(world, 0)
        stored_at.append(clock.seconds())

    def arrive(_: object) -> None:
        arrived_at.append(clock.seconds())
        stop.ask()

    world.queue.trouble |= {"error": store_another, "Billing": arrive}
    _store(world, -1, "error")

    run = ticker.tick()
    ticker.close()

    assert arrived_at[0] - stored_at[-1] < 1
    assert run.report is not None
    assert (run.report.claimed, len(run.report.sweep_ids)) == (7, 1)


def test_open_sweep_ends_when_the_destination_of_limited_messages_fails() -> None:
    world, ticker, _ = _limited(per_second=10)
    answers = iter([None, DestinationError("Shipping is locked")])
    world.queue.trouble["Shipping"] = lambda _: next(answers, None)

    first, second = ticker.tick(), ticker.tick()
    ticker.close()

    assert first.report is not None
    # If it continued, they would be found in it twice.
    assert (first.report.found, first.report.claimed, first.report.left) == (3, 1, 2)
    assert second.report is not None
    assert (second.report.found, second.report.claimed) == (2, 2)


def test_failing_destination_is_tried_once_for_all_work_that_waits_for_its_limit() -> None:
    world, ticker, stop = _limited(20, RateLimit("Billing", 20))
    is_locked, tries = False, 0

    def lock(_: object) -> DestinationError | None:
        nonlocal tries
        tries += is_locked
        return DestinationError("Shipping is locked") if is_locked else None

    def store_others(_: object) -> None:
        nonlocal is_locked
        arrived = len(world.queue.arrived["Billing"])
        is_locked = arrived >= 5
        if arrived < 5:
            _store(world, 0)
            for _ in range(3):
                _store(world, 0, "Shipping")

    world.queue.trouble |= {"Shipping": lock, "Billing": store_others}
    _store(world, -1)

    run = ticker.tick()
    stop.ask()
    ticker.close()

    assert tries == 1
    assert run.report is not None
    assert run.report.left > 1
    assert run.report.found == run.report.claimed + run.report.left


def test_sweep_stays_open_for_an_outage_also_if_limited_messages_have_gone() -> None:
    world, ticker, _ = _limited(20)
    world.queue.trouble["Billing"] = lambda _: DestinationError("Billing is locked")
    _store(world, -1)
    began = world.clock.seconds()

    run = ticker.tick()
    ticker.close()

    # Otherwise each message with a limit would take a sweep.
    assert world.clock.seconds() - began > 0.8
    assert run.report is not None
    assert (run.report.claimed, run.report.left) == (3, 1)


def test_lost_store_is_asked_for_one_session_for_all_slices_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, ticker, stop = _limited(0.05)
    attempts: list[float] = []

    def lose(*_: object) -> NoReturn:
        raise StoreError("the connection was lost", transient=True)

    def refuse() -> NoReturn:
        attempts.append(world.clock.seconds())
        stop.ask()
        lose()

    def store_others(_: object) -> None:
        if len(world.queue.arrived["Billing"]) < 10:
            _store(world, 0)
            _store(world, 0, "Shipping")
            return
        # Only the waiting slices ask for anything from here on.
        monkeypatch.setattr(world.store, "open_task", refuse)
        monkeypatch.setattr(MemoryTaskSession, "claim", lose)

    world.queue.trouble["Billing"] = store_others
    _store(world, -1)

    run = ticker.tick()
    monkeypatch.undo()
    ticker.close()

    assert len(attempts) == 1
    assert run.report is not None
    assert (run.report.claimed, run.report.left) == (12, 12)


def test_sweep_ends_if_no_thread_can_wait_for_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    _, ticker, _ = _limited(0.05)
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "duesweep limits":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)

    run = ticker.tick()
    ticker.close()

    assert run.report is not None
    assert (run.report.found, run.report.left, run.outcome) == (3, 3, "incomplete")
    assert "can't start new thread" in str(run.error)


def test_next_sweep_plans_the_messages_that_wait_for_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("duesweep.sweep.open_sweep.OPEN_SECONDS", 0.2)
    world, ticker, _ = _limited(per_second=5)

    runs = []
    while world.store.rows:
        runs.append(ticker.tick())
    ticker.close()

    assert len(world.queue.arrived["Shipping"]) == 3
    reports = [run.report for run in runs if run.report is not None]
    assert len(reports) > 1
    assert sum(report.claimed for report in reports) == 3
    assert [report.found - report.claimed - report.left for report in reports] == [0] * len(reports)


def test_messages_that_an_early_part_of_a_backlog_left_are_tried_again_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if looks at all messages take long, and so are few."""
    for module in ("core.policy", "sweep.backlog", "operations.look"):
        monkeypatch.setattr(f"duesweep.{module}.MOST_IN_A_SWEEP", 40)
    world, clock = _world()
    began: list[float] = []
    arrived: list[float] = []
    find = MemoryDue.find_work

    def find_work(due: MemoryDue, horizon: Horizon) -> Work | None:
        clock.advance(0.4 if horizon.since is None else 0.0)
        return find(due, horizon)

    def locked(_: object) -> DestinationError | None:
        if clock.seconds() < began[0] + 1:
            return DestinationError("Shipping is locked")
        arrived.append(clock.seconds())
        return None

    monkeypatch.setattr(MemoryDue, "find_work", find_work)
    world.queue.trouble["Billing"] = lambda _: began.append(clock.seconds())
    world.queue.trouble["Shipping"] = locked
    context = world.context(spark_from=None, batch_size=BatchSize(rows=20))
    ticker = _open(context, Stop(clock=clock))

    def tick_until(is_over: Callable[[], bool]) -> None:
        while not is_over():
            ticker.tick()
            clock.advance(0.1)

    tick_until(lambda: clock.seconds() > 2)
    _store(world, -200)
    for number in range(5):
        _store(world, -100 + number, "Shipping")
    for number in range(100):
        _store(world, -50 + 0.01 * number)
    tick_until(lambda: not world.store.rows)

    assert len(arrived) == 5
    assert max(arrived) - began[0] < 3


def test_monitors_see_an_open_sweep_catch_up_and_wait_for_its_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, _ = _world(-1, 0.3, 0.6)
    stop, plan, waits = Stop(clock=world.clock), MemoryDue.plan, list[list[str]]()
    health = Health("memory", 0.1, stop.waits)
    well: list[bool] = []

    def planned(due: MemoryDue, horizon: Horizon, slicing: Slicing) -> Slices:
        waits.append([each.what for each in stop.waits.long()])
        well.append(health.is_well)
        return plan(due, horizon, slicing)

    monkeypatch.setattr("duesweep.core.world.LONG_SECONDS", -1)
    monkeypatch.setattr(MemoryDue, "plan", planned)

    _open(world.context(spark_from=None), stop).tick()

    # The settler works at the same time.
    of_sweep = {tuple(what for what in each if what != STORAGE) for each in waits[1:]}
    assert of_sweep == {("store",)}
    # Its first tick has not ended yet.
    assert (well[0], well[2]) == (False, True)


def test_idle_watcher_delivers_a_message_that_is_stored_with_an_earlier_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As soon as a look at all messages finds it. These take long here, and so are few."""
    world, clock = _world()
    ticker, find = _ticker(world), MemoryDue.find_work
    found: list[float] = []
    arrived: list[float] = []
    world.queue.trouble["Billing"] = lambda _: arrived.append(clock.seconds())

    def find_work(due: MemoryDue, horizon: Horizon) -> Work | None:
        clock.advance(0.06 if horizon.since is None else 0.0)
        work = find(due, horizon)
        if work is not None:
            found.append(clock.seconds())
        return work

    monkeypatch.setattr(MemoryDue, "find_work", find_work)

    def tick_until(seconds: float) -> None:
        while clock.seconds() < seconds:
            ticker.tick()
            clock.advance(0.1)

    tick_until(3.05)
    _store(world, -60)
    tick_until(12)

    assert arrived == [pytest.approx(found[0], abs=0.1)]
    assert found[0] < 3.05 + 5 + 1


@pytest.mark.parametrize("due_in", [(-1,), (-1, 0.3, 0.6, 0.9)])
def test_rounds_of_a_sweep_open_no_more_sessions(
    due_in: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = _world(*due_in)
    opened: list[object] = []
    open_task = world.store.open_task

    def opening() -> object:
        opened.append(open_task())
        return opened[-1]

    monkeypatch.setattr(world.store, "open_task", opening)

    assert _sweeps(_ticker(world).tick()) == (1, len(due_in))
    # Two of them ask for the queues that are not there.
    assert len(opened) <= 3
