"""What one task does with its slice, over a store and queues in memory."""

import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from duesweep.core.message import Message
from duesweep.core.policy import CLAIM_SECONDS, BatchLimits
from duesweep.core.world import SettableClock
from duesweep.errors import (
    RefusedMessageError,
)
from duesweep.stores import tombstone
from duesweep_testing.builders import BODY, DelayedRow, delayed_row
from duesweep_testing.journal import BatchEntry
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_queue import MemoryQueue
from duesweep_testing.sweeps import open_sweep
from support.dispatch_world import World, one, slice_end, world_of


def test_due_messages_are_delivered_and_accounted_for() -> None:
    rows = [
        delayed_row("Billing"),
        delayed_row("Shipping"),
        delayed_row(None),
        delayed_row("Billing"),
    ]
    world = world_of(*rows)

    run = world.sweep()

    assert world.queue.arrived == {
        "Billing": [one(rows[0]), one(rows[3])],
        "Shipping": [one(rows[1])],
        "Sales.Orders": [one(rows[2])],
        "error": [],
    }
    assert world.store.rows == {}
    assert world.counted(run) == (4, 0)
    assert world.ends(run) == [slice_end(given=4, claimed=4)]
    (batch, _) = world.store.journal[run.sweep_id]
    assert isinstance(batch, BatchEntry)
    assert batch.outcomes is not None
    assert batch.body_bytes == 4 * len(BODY)
    accounts = tombstone.decode(batch.outcomes).to_pylist()
    assert {row["message_key"]: row["queue"] for row in accounts} == {
        rows[0].key: "Billing",
        rows[1].key: "Shipping",
        rows[2].key: "Sales.Orders",
        rows[3].key: "Billing",
    }
    assert {row["attempts"] for row in accounts} == {1}


def test_slice_is_dispatched_in_batches_within_the_limits() -> None:
    world = world_of(*[delayed_row() for _ in range(7)])

    run = world.sweep(limits=BatchLimits(rows=3))

    assert world.batches(run) == [(3, 0), (3, 0), (1, 0)]
    assert world.ends(run) == [slice_end(given=7, claimed=7)]


def test_refused_message_costs_only_itself() -> None:
    rows = [delayed_row() for _ in range(5)]
    world = world_of(*rows)
    world.trouble("Billing", RefusedMessageError("too large"), rows[2].key)

    run = world.sweep()

    assert world.queue.arrived["Billing"] == [one(r) for r in rows if r is not rows[2]]
    assert list(world.store.rows) == [rows[2].key]
    assert {key: one.attempts for key, one in world.store.attempts.items()} == {rows[2].key: 1}
    assert world.counted(run) == (4, 1)


def test_unreadable_headers_cost_only_their_message() -> None:
    rows = [delayed_row(), DelayedRow(headers="{"), delayed_row()]
    world = world_of(*rows)

    run = world.sweep()

    assert len(world.queue.arrived["Billing"]) == 2
    assert list(world.store.rows) == list(world.store.attempts) == [rows[1].key]
    assert world.counted(run) == (2, 1)


def test_slice_run_twice_does_nothing_the_second_time() -> None:
    rows = [delayed_row("Billing"), delayed_row("Nowhere")]
    world = world_of(*rows)
    keys = [row.key for row in rows]
    run = world.sweep(keys)
    after_first = (dict(world.store.rows), dict(world.store.attempts), world.counted(run))

    world.run_slice(run, keys)

    assert (world.store.rows, world.store.attempts, world.counted(run)) == after_first
    assert world.queue.arrived["Billing"] == [one(rows[0])]
    assert world.ends(run) == [slice_end(given=2, claimed=2), slice_end(given=2, gone=1, later=1)]


def test_what_another_session_holds_is_left_to_it() -> None:
    rows = [delayed_row(), delayed_row()]
    world = world_of(*rows)
    other_run = open_sweep(world.store)
    with world.store.open_task() as other, other.transaction():
        other.claim(other_run, [rows[0].key])

        run = world.sweep()

    assert world.queue.arrived["Billing"] == [one(rows[1])]
    assert world.counted(run) == (1, 0)
    assert world.ends(run) == [slice_end(given=2, claimed=1, skipped=1)]


def test_slow_batch_puts_groups_back_and_delivers_them_next() -> None:
    rows = [delayed_row(d) for d in ("Billing", "Shipping", None, "Billing", "Shipping")]
    world = world_of(*rows)
    world.queue.trouble["Billing"] = _slow(world, CLAIM_SECONDS)

    run = world.sweep()

    assert {name: len(sent) for name, sent in world.queue.arrived.items()} == {
        "Billing": 2,
        "Shipping": 2,
        "Sales.Orders": 1,
        "error": 0,
    }
    assert world.batches(run) == [(2, 0), (3, 0)]
    assert world.store.rows == {}
    assert world.ends(run) == [slice_end(given=5, claimed=5)]


class _RacingClock(SettableClock):
    """Each look at it takes as long as a batch may take; there are 100 looks."""

    def seconds(self) -> float:
        self.advance(CLAIM_SECONDS + 1)
        assert super().seconds() < 100 * (CLAIM_SECONDS + 1)
        return super().seconds()


def test_batch_that_is_late_from_the_start_still_delivers_one_group_at_a_time() -> None:
    world = world_of(*[delayed_row(d) for d in ("Billing", "Shipping", "Nowhere", None)])

    run = world.sweep(clock=_RacingClock())

    assert world.batches(run) == [(1, 0), (1, 0), (0, 1), (1, 0)]


def test_batch_within_its_time_puts_nothing_back() -> None:
    rows = [delayed_row("Billing"), delayed_row("Shipping")]
    world = world_of(*rows)
    world.queue.trouble["Billing"] = _slow(world, CLAIM_SECONDS)

    assert world.batches(world.sweep()) == [(2, 0)]


def test_time_that_a_batch_took_counts_as_lateness() -> None:
    world = world_of(delayed_row())
    world.queue.trouble["Billing"] = _slow(world, 2.5)

    run = world.sweep()

    (batch, _) = world.store.journal[run.sweep_id]
    assert isinstance(batch, BatchEntry)
    assert batch.lateness_ms == (3_600_000 + 2_500,)


def _slow(world: World, seconds: float) -> Callable[[Message], None]:
    def take_time(_: Message) -> None:
        world.clock.advance(seconds)

    return take_time


def test_queue_with_a_transaction_of_its_own_gets_every_batch() -> None:
    rows = [delayed_row() for _ in range(3)]
    world = World(MemoryStore(rows), MemoryQueue("Billing", own_transaction=True))

    run = world.sweep(limits=BatchLimits(rows=2))

    assert world.queue.arrived["Billing"] == [one(row) for row in rows]
    assert world.counted(run) == (3, 0)


class _Body:
    """What a circle holds."""

    def __init__(self) -> None:
        self.circle = self


def test_circles_of_a_batch_are_collected_before_the_next_batch() -> None:
    world = world_of(*[delayed_row() for _ in range(6)])
    bodies: list[weakref.ref[_Body]] = []
    alive: list[int] = []

    def leave_a_circle(_: Message) -> None:
        alive.append(sum(body() is not None for body in bodies))
        bodies.append(weakref.ref(_Body()))

    world.queue.trouble["Billing"] = leave_a_circle
    world.sweep(limits=BatchLimits(rows=2))

    assert alive == [0, 1, 0, 1, 0, 1]


@pytest.fixture
def _own_threshold() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(500, 10, 10)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("_own_threshold")
def test_collector_works_as_before_after_a_slice() -> None:
    world_of(delayed_row()).sweep()

    assert gc.get_threshold() == (500, 10, 10)
