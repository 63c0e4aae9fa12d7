"""A slice of a sweep that is to stop."""

from collections.abc import Sequence

import pytest

from duesweep.core.message import Message
from duesweep.core.policy import CLAIM_SECONDS, BatchLimits
from duesweep.errors import (
    DestinationError,
    QueueNotFoundError,
    TransactionLostError,
)
from duesweep.stores.values import SweepRun
from duesweep_testing.builders import DelayedRow, delayed_row
from duesweep_testing.sweeps import open_sweep, stop_sweep
from support.dispatch_world import World, one, slice_end, world_of
from support.taking import TakingStore

_LIMITS = BatchLimits(rows=2)


def _stop_at(world: World, run: SweepRun, key: str, error: Exception | None = None) -> None:
    """Stop the sweep when this message is delivered, which meets `error`."""

    def trouble(message: Message) -> Exception | None:
        if message.key != key:
            return None
        stop_sweep(world.store, run, 0)
        return error

    world.queue.trouble["Billing"] = trouble  # type: ignore[assignment]


def _rows(count: int) -> list[DelayedRow]:
    return [delayed_row() for _ in range(count)]


def _careful(rows: Sequence[DelayedRow]) -> World:
    return world_of(*rows)


def _short(rows: Sequence[DelayedRow]) -> World:
    return World(TakingStore(*rows))


@pytest.mark.parametrize("form", [_careful, _short])
def test_batch_in_hand_is_finished_and_the_rest_is_left_in_a_complete_slice(form) -> None:  # type: ignore[no-untyped-def]
    rows = _rows(7)
    world = form(rows)
    run = open_sweep(world.store)
    _stop_at(world, run, rows[2].key)

    world.run_slice(run, limits=_LIMITS)

    assert world.queue.arrived["Billing"] == [one(row) for row in rows[:4]]
    assert list(world.store.rows) == [row.key for row in rows[4:]]
    assert world.counted(run) == (4, 0)
    assert world.ends(run) == [slice_end(given=7, claimed=4, left=3)]


@pytest.mark.parametrize("form", [_careful, _short])
def test_slice_that_has_not_begun_ends_at_its_first_batch(form) -> None:  # type: ignore[no-untyped-def]
    rows = _rows(5)
    world = form(rows)
    run = open_sweep(world.store)
    stop_sweep(world.store, run, 0)

    world.run_slice(run, limits=_LIMITS)

    assert len(world.store.rows) == 5
    assert world.store.journal[run.sweep_id] == [slice_end(given=5, left=5)]


def test_messages_that_a_batch_released_are_left() -> None:
    first, late, other = delayed_row("Billing"), delayed_row("Shipping"), delayed_row("Billing")
    world = world_of(first, late, other)
    run = open_sweep(world.store)

    def stop_and_take_long(_: Message) -> None:
        stop_sweep(world.store, run, 0)
        world.clock.advance(CLAIM_SECONDS + 1)

    world.queue.trouble["Billing"] = stop_and_take_long

    world.run_slice(run, limits=_LIMITS)

    assert world.queue.arrived["Billing"] == [one(first)]
    assert world.ends(run) == [slice_end(given=3, claimed=1, left=2)]


def test_batch_whose_transaction_was_lost_is_not_claimed_again() -> None:
    rows = _rows(3)
    world = world_of(*rows)
    run = open_sweep(world.store)
    _stop_at(world, run, rows[0].key, TransactionLostError("deadlock"))

    world.run_slice(run, limits=_LIMITS)

    assert world.queue.arrived["Billing"] == []
    assert world.ends(run) == [slice_end(given=3, left=3)]
    assert world.store.holders == {}


def test_failures_of_the_batch_in_hand_are_counted() -> None:
    rows = _rows(3)
    world = world_of(*rows)
    run = open_sweep(world.store)
    _stop_at(world, run, rows[0].key, QueueNotFoundError("There is no queue"))

    world.run_slice(run, limits=_LIMITS)

    assert world.counted(run) == (1, 1)
    assert world.ends(run) == [slice_end(given=3, claimed=2, left=1)]


def test_destination_that_takes_nothing_is_still_the_reason_of_its_slice() -> None:
    rows = _rows(4)
    world = world_of(*rows)
    run = open_sweep(world.store)
    _stop_at(world, run, rows[0].key, DestinationError("Billing is locked"))

    world.run_slice(run, limits=_LIMITS)

    assert world.ends(run) == [slice_end("Billing is locked", given=4, left=4)]


def test_slice_that_waits_for_a_destination_sees_the_stop_within_a_second() -> None:
    first, second = _rows(2)
    world = world_of(first, second)
    run = open_sweep(world.store)
    stop_at = 15.5
    wait = world.clock.sleep

    def try_for_long(_: Message) -> Exception:
        world.clock.advance(5)
        return DestinationError("Billing is locked")

    def sleep(seconds: float) -> None:
        wait(seconds)
        if world.clock.seconds() >= stop_at:
            stop_sweep(world.store, run, 0)

    world.queue.trouble["Billing"] = try_for_long
    world.clock.sleep = sleep  # type: ignore[method-assign]

    world.run_slice(run, limits=_LIMITS)

    assert world.ends(run) == [slice_end("Billing is locked", given=2, left=2)]
    assert stop_at <= world.clock.seconds() <= stop_at + 1
