"""Slices with paused destinations, with limits, and with a share of their messages."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from duesweep.core.message import Message
from duesweep.core.policy import BatchSize, RateLimit, RateLimits
from duesweep.core.world import SettableClock
from duesweep.sweep.limits import Reservations
from duesweep.sweep.stop import Stop
from duesweep_testing.builders import ENDPOINT, DelayedRow, delayed_row
from duesweep_testing.memory import MemoryStore, MemoryTaskSession
from duesweep_testing.sweeps import open_sweep, stop_sweep
from support.contract.memory_stores import MovingStore
from support.dispatch_world import World, one, slice_end, world_of


def _rows(count: int, destination: str | None = "Billing") -> list[DelayedRow]:
    return [delayed_row(destination) for _ in range(count)]


def _pause(world: World, pattern: str) -> None:
    with world.store.open_driver() as driver:
        driver.people.pause(pattern, None, "ops@host", "why")


def _limited(*limits: RateLimit, rows: Sequence[DelayedRow]) -> World:
    """A world whose store and slice share one clock, so that a wait makes both later."""
    store = MemoryStore(rows)
    world = World(store, clock=store.clock)
    world.job = {"rate_limits": RateLimits(limits, ENDPOINT)}
    return world


@pytest.mark.parametrize("pattern", ["Billing", "Bill*", "*ing"])
def test_messages_for_a_paused_destination_stay_uncharged(pattern: str) -> None:
    paused, free = _rows(3), _rows(2, "error")
    world = world_of(*paused, *free)
    _pause(world, pattern)

    run = world.sweep()

    assert set(world.store.rows) == {row.key for row in paused}
    assert world.store.attempts == {}
    assert world.queue.arrived["error"] == [one(row) for row in free]
    assert world.ends(run) == [slice_end(given=5, claimed=2, held=3)]


def test_pause_of_everything_holds_what_cannot_be_read_too() -> None:
    world = world_of(*_rows(1), DelayedRow(headers="{"))
    _pause(world, "*")

    run = world.sweep()

    assert (len(world.store.rows), world.store.attempts) == (2, {})
    assert world.ends(run) == [slice_end(given=2, held=2)]


def test_pause_of_the_endpoint_holds_messages_without_a_destination() -> None:
    own, broken = _rows(1, None), DelayedRow(headers="{")
    world = world_of(*own, broken, own_name=ENDPOINT)
    _pause(world, ENDPOINT)

    run = world.sweep()

    # The other one's destination is unknown. It fails, as it would without the pause.
    assert world.ends(run) == [slice_end(given=2, claimed=1, held=1)]
    assert set(world.store.attempts) == {broken.key}


def test_pause_while_a_slice_runs_counts_from_the_next_batch_on() -> None:
    rows = _rows(4)
    world = world_of(*rows, batch_size=BatchSize(rows=2))

    def pause(_: Message) -> None:
        _pause(world, "Billing")

    world.queue.trouble["Billing"] = pause
    run = world.sweep()

    assert world.ends(run) == [slice_end(given=4, claimed=2, held=2)]
    assert set(world.store.rows) == {row.key for row in rows[2:]}


def test_moved_form_gives_way_to_a_limit() -> None:
    store = MovingStore(*_rows(3))
    world = World(store, clock=store.clock)

    world.sweep(rate_limits=RateLimits((RateLimit("Billing", 100),), ENDPOINT))

    assert (store.moved, store.claimed[:1]) == ([3], [3])
    assert len(world.queue.arrived["Billing"]) == 3


def test_moved_form_gives_way_to_a_pause() -> None:
    paused, free = _rows(1), _rows(1, "Shipping")
    store = MovingStore(*paused, *free)
    world = World(store)
    _pause(world, "Billing")

    run = world.sweep()

    assert (store.moved, store.claimed) == ([2], [2])
    assert set(store.rows) == {paused[0].key}
    assert world.ends(run) == [slice_end(given=2, claimed=1, held=1)]


def test_limit_lets_so_many_messages_go_in_a_second() -> None:
    rows = _rows(100)
    world = _limited(RateLimit("Billing", 100), rows=rows)
    began = world.clock.seconds()
    arrived = _note_times(world)

    run = world.sweep()

    assert world.ends(run) == [slice_end(given=100, claimed=100)]
    assert world.clock.seconds() - began == pytest.approx(100 / 95, abs=0.1)
    in_half_a_second = sum(at - began < 0.5 for at in arrived)
    assert 45 <= in_half_a_second <= 50


def test_progress_is_told_of_batches_and_while_all_that_is_left_waits_for_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = _limited(RateLimit("Billing", 0.05), rows=[*_rows(2), *_rows(1, "Shipping")])
    told: list[float] = []
    world.job["stop"] = stop = Stop()
    monkeypatch.setattr(stop.waits, "progressed", lambda: told.append(world.clock.seconds()))
    began = world.clock.seconds()

    world.sweep()

    assert told[0] == began
    assert told[-1] - began > 20
    assert max(later - earlier for earlier, later in pairwise(told)) <= 1


def test_other_destinations_do_not_wait_for_a_limit() -> None:
    limited, free = _rows(5), _rows(5, "Shipping")
    world = _limited(RateLimit("Bill*", 0.5), rows=[*limited, *free])
    began = world.clock.seconds()
    arrived = _note_times(world, "Shipping")

    world.sweep()

    assert arrived == [began] * 5
    assert world.queue.arrived["Billing"] == [one(row) for row in limited]
    assert world.clock.seconds() - began > 4 / 0.5


def test_destinations_of_one_limit_share_it() -> None:
    world = _limited(RateLimit("*", 1), rows=[*_rows(3), *_rows(3, "Shipping")])
    began = world.clock.seconds()

    world.sweep()

    assert world.clock.seconds() - began == pytest.approx(5 / 0.95, abs=0.1)


def test_sweep_that_is_stopped_leaves_what_waits_for_a_limit() -> None:
    world = _limited(RateLimit("Billing", 1), rows=_rows(10))
    run = open_sweep(world.store)
    stop_sweep(world.store, run, 3.5)

    world.run_slice(run)

    [end] = world.ends(run)
    assert end.end.reason is None
    assert end.end.account.claimed == 4
    assert end.end.account.left == len(world.store.rows) == 6


def test_slice_with_a_share_claims_its_oldest_messages_and_leaves_the_rest() -> None:
    rows = _rows(5)
    world = world_of(*rows, shares=(3,))

    run = world.sweep([row.key for row in rows])

    assert set(world.store.rows) == {row.key for row in rows[3:]}
    assert world.ends(run) == [slice_end(given=5, claimed=3, left=2)]


def test_messages_that_are_held_use_up_no_share() -> None:
    paused, free = _rows(3), _rows(3, "Shipping")
    world = world_of(*paused, *free, shares=(2,))
    _pause(world, "Billing")

    run = world.sweep([row.key for row in (*paused, *free)])

    assert set(world.store.rows) == {row.key for row in (*paused, free[2])}
    assert world.ends(run) == [slice_end(given=6, claimed=2, held=3, left=1)]


def test_messages_that_wait_for_a_limit_go_only_as_far_as_the_share_does() -> None:
    rows = _rows(5)
    world = _limited(RateLimit("Billing", 100), rows=rows)
    world.job["shares"] = (3,)

    run = world.sweep([row.key for row in rows])

    assert len(world.store.rows) == 2
    assert world.ends(run) == [slice_end(given=5, claimed=3, left=2)]


def test_sweep_that_is_stopped_accounts_for_messages_beyond_a_share_that_wait_for_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = _rows(5)
    world = _limited(RateLimit("Billing", 100), rows=rows)
    world.job["shares"] = (3,)
    run = open_sweep(world.store)
    reserve = MemoryTaskSession.reserve

    def stop_and_reserve(session: MemoryTaskSession, *limit: Any) -> float:
        stop_sweep(world.store, run, 0)
        return reserve(session, *limit)

    monkeypatch.setattr(MemoryTaskSession, "reserve", stop_and_reserve)

    world.run_slice(run)

    assert world.ends(run) == [slice_end(given=5, left=5)]


def _note_times(world: World, queue: str = "Billing") -> list[float]:
    """The clock's seconds at which messages are delivered, in order."""
    arrived: list[float] = []

    def note(_: Message) -> None:
        arrived.append(world.clock.seconds())

    world.queue.trouble[queue] = note
    return arrived


_LIMIT = RateLimit("Billing", 500)
_WAITING = {"Billing": 100}


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def limits(clock: SettableClock) -> Reservations:
    return Reservations(RateLimits((_LIMIT,)), clock)


def test_limit_that_is_free_lets_messages_go_however_long_the_store_took_to_answer(
    clock: SettableClock, limits: Reservations
) -> None:
    def ask(_limit: RateLimit, _messages: int) -> float:
        clock.sleep(5)
        return 0.0

    limits.reserve(_WAITING, ask)

    assert [(one.address, one.messages) for one in limits.due(_WAITING)] == [("Billing", 20)]


def test_reservation_that_is_late_is_dropped_but_not_two_that_follow_each_other(
    clock: SettableClock, limits: Reservations
) -> None:
    used = []
    for _ in range(6):
        limits.reserve(_WAITING, lambda *_: 0.0)
        clock.sleep(1)
        used.append(len(limits.due(_WAITING)))

    assert used == [0, 1, 0, 1, 0, 1]


def test_reservation_in_time_is_used_after_a_late_one_and_forgives_none(
    clock: SettableClock, limits: Reservations
) -> None:
    used = []
    for late in (1.0, 0.0, 1.0):
        limits.reserve(_WAITING, lambda *_: 0.0)
        clock.sleep(late)
        used.append(len(limits.due(_WAITING)))

    assert used == [0, 1, 0]


def test_first_limit_that_fits_a_destination_counts() -> None:
    few, many = RateLimit("Bill*", 5), RateLimit("*", 500)

    limits = RateLimits((few, many))

    assert (limits.of("Billing"), limits.of("Shipping")) == (few, many)


def test_slices_together_send_no_more_than_the_limit_in_any_second(clock: SettableClock) -> None:
    slices = [Reservations(RateLimits((_LIMIT,)), clock) for _ in range(3)]
    free_at, sent_at = 0.0, list[float]()

    def ask(limit: RateLimit, messages: int) -> float:
        nonlocal free_at
        begins = max(free_at, clock.seconds())
        free_at = begins + messages * limit.seconds_each
        return begins - clock.seconds()

    while clock.seconds() < 3:
        for each in slices:
            each.reserve(_WAITING, ask)
            sent_at += [clock.seconds()] * sum(one.messages for one in each.due(_WAITING))
        clock.sleep(0.001)

    in_each_second = [sum(at <= other < at + 1 for other in sent_at) for at in {*sent_at}]
    assert 0.9 * _LIMIT.per_second < max(in_each_second) <= _LIMIT.per_second
