"""Services that fail, and unforeseen errors."""

from typing import Any

import pytest

from duesweep.core.message import Message
from duesweep.core.policy import BatchLimits, BreakerLimits
from duesweep.drivers.statements import MAX_LOST_TRANSACTIONS
from duesweep.errors import (
    ConfigError,
    DestinationError,
    DuesweepError,
    QueueError,
    StoreError,
    TransactionLostError,
)
from duesweep_testing.builders import DelayedRow, delayed_row
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_queue import MemoryQueue
from duesweep_testing.sweeps import close_sweep, open_sweep
from support.dispatch_world import World, one, slice_end, world_of

# What fails is not tried again in the slice.
AT_ONCE = BreakerLimits(trigger_seconds=0)


def test_blocked_destination_keeps_its_messages_uncharged_and_the_others_go_on() -> None:
    blocked = [delayed_row("Shipping") for _ in range(4)]
    others = [delayed_row("Billing") for _ in range(4)]
    world = world_of(*[row for pair in zip(blocked, others, strict=True) for row in pair])
    tried: list[str] = []

    def lock(message: Message) -> DestinationError:
        tried.append(message.key)
        return DestinationError("Shipping is locked")

    world.queue.trouble["Shipping"] = lock

    run = world.sweep(limits=BatchLimits(rows=4), breaker=AT_ONCE)

    assert len(world.queue.arrived["Billing"]) == 4
    assert list(world.store.rows) == [row.key for row in blocked]
    assert world.store.attempts == {}
    assert world.counted(run) == (4, 0)
    assert world.ends(run) == [slice_end("Shipping is locked", given=8, claimed=4, left=4)]
    assert tried == [blocked[0].key], "a blocked destination was tried again in the same slice"


def test_batch_of_blocked_messages_only_journals_nothing_but_the_end() -> None:
    world = world_of(delayed_row("Shipping"))
    world.trouble("Shipping", DestinationError("Shipping is locked"))

    run = world.sweep()

    assert len(world.store.journal[run.sweep_id]) == 1
    assert world.ends(run) == [slice_end("Shipping is locked", given=1, left=1)]


@pytest.mark.parametrize("error", [StoreError, QueueError])
def test_service_that_fails_ends_the_slice_with_its_reason_and_charges_no_message(
    error: type[StoreError],
) -> None:
    rows = [delayed_row() for _ in range(6)]
    world = world_of(*rows)
    world.trouble("Billing", error("the server went away", transient=True), rows[3].key)

    run = world.sweep(limits=BatchLimits(rows=2))

    assert world.queue.arrived["Billing"] == [one(row) for row in rows[:2]]
    assert list(world.store.rows) == [row.key for row in rows[2:]]
    assert world.store.attempts == {}
    assert world.store.holders == {}
    assert world.counted(run) == (2, 0)
    assert world.ends(run) == [slice_end("the server went away", given=6, claimed=2)]


class _Unreachable(MemoryStore):
    """Its server takes no session but the first `sessions`."""

    def __init__(self, error: DuesweepError, *rows: DelayedRow, sessions: int = 0) -> None:
        super().__init__(rows)
        self._error = error
        self._sessions = sessions

    def open_task(self) -> Any:
        self._sessions -= 1
        if self._sessions < 0:
            raise self._error
        return super().open_task()


@pytest.mark.parametrize(
    "error",
    [StoreError("no server answers", transient=True), ConfigError("the password is wrong")],
)
def test_store_out_of_reach_leaves_the_slice_without_an_end_and_raises_nothing(
    error: DuesweepError,
) -> None:
    world = World(_Unreachable(error, delayed_row()))

    run = world.sweep()

    assert world.store.journal[run.sweep_id] == []
    assert len(world.store.rows) == 1


def test_store_that_does_not_come_back_leaves_the_slice_without_an_end() -> None:
    rows = [delayed_row(), delayed_row()]
    away = StoreError("no server answers", transient=True)
    world = World(_Unreachable(away, *rows, sessions=1))
    world.trouble("Billing", away, rows[1].key)

    run = world.sweep(limits=BatchLimits(rows=1))

    assert world.counted(run) == (1, 0)
    assert world.ends(run) == []


def test_unforeseen_error_is_raised_and_its_batch_rolled_back() -> None:
    rows = [delayed_row() for _ in range(4)]
    world = world_of(*rows)
    _break_at(rows[3], world)
    run = open_sweep(world.store)

    with pytest.raises(ZeroDivisionError):
        world.run_slice(run, limits=BatchLimits(rows=2))

    assert world.queue.arrived["Billing"] == [one(row) for row in rows[:2]]
    assert list(world.store.rows) == [row.key for row in rows[2:]]
    assert world.store.holders == {}
    assert world.ends(run) == []


def _break_at(row: DelayedRow, world: World) -> None:
    def break_down(message: Message) -> None:
        if message.key == row.key:
            raise ZeroDivisionError

    world.queue.trouble["Billing"] = break_down


def test_slice_that_is_run_again_after_a_breakdown_does_the_rest_once() -> None:
    rows = [delayed_row() for _ in range(6)]
    world = world_of(*rows, limits=BatchLimits(rows=2))
    keys = [row.key for row in rows]
    run = open_sweep(world.store)
    _break_at(rows[3], world)
    with pytest.raises(ZeroDivisionError):
        world.run_slice(run, keys)
    world.queue.trouble.clear()

    world.run_slice(run, keys)

    assert world.queue.arrived["Billing"] == [one(row) for row in rows]
    assert world.counted(run) == (6, 0)


def test_closed_sweep_stops_silently() -> None:
    world = world_of(delayed_row())
    run = open_sweep(world.store)
    close_sweep(world.store, run)

    world.run_slice(run)

    assert world.store.journal[run.sweep_id] == []
    assert world.queue.arrived["Billing"] == []
    assert len(world.store.rows) == 1


def test_batch_whose_transaction_is_lost_is_claimed_again() -> None:
    rows = [delayed_row() for _ in range(4)]
    world = world_of(*rows)
    losses = iter([True, True])

    def deadlock(message: Message) -> DuesweepError | None:
        is_lost = message.key == rows[2].key and next(losses, False)
        return TransactionLostError("deadlock") if is_lost else None

    world.queue.trouble["Billing"] = deadlock

    run = world.sweep(limits=BatchLimits(rows=2))

    assert world.queue.arrived["Billing"] == [one(row) for row in rows]
    assert world.counted(run) == (4, 0)
    assert world.ends(run) == [slice_end(given=4, claimed=4)]


def test_batch_whose_transaction_is_lost_again_and_again_cuts_the_slice() -> None:
    world = world_of(row := delayed_row())
    world.trouble("Billing", TransactionLostError("deadlock"))

    run = world.sweep()

    assert list(world.store.rows) == [row.key]
    assert world.store.attempts == {}
    assert world.ends(run) == [slice_end("deadlock", given=1)]


def test_logs_of_a_slice_name_its_sweep(caplog: pytest.LogCaptureFixture) -> None:
    cut, closed = world_of(delayed_row()), world_of(delayed_row())
    cut.trouble("Billing", TransactionLostError("deadlock"))
    closed_run = open_sweep(closed.store)
    close_sweep(closed.store, closed_run)

    cut_run = cut.sweep()
    closed.run_slice(closed_run)

    # Workers have no handler of their own, so they print warnings only.
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    *again, last, stopped = caplog.messages
    slice_0 = f"Slice 0 of sweep {cut_run.sweep_id}"
    assert again == [f"{slice_0} claims a batch again: deadlock"] * MAX_LOST_TRANSACTIONS
    assert last == f"{slice_0} is cut: deadlock"
    assert stopped.startswith(f"Slice 0 of sweep {closed_run.sweep_id} stops: ")


@pytest.mark.parametrize("own_transaction", [False, True])
def test_destination_that_loses_the_transaction_is_left_out_and_the_others_are_done(
    *, own_transaction: bool
) -> None:
    first, bad, last = delayed_row("Billing"), delayed_row("Shipping"), delayed_row("Billing")
    queue = MemoryQueue("Billing", "Shipping", own_transaction=own_transaction)
    world = World(MemoryStore([first, bad, last]), queue)
    error = TransactionLostError("a trigger rolls back", destination_is_at_fault=True)
    world.trouble("Shipping", error)

    run = world.sweep()

    assert world.queue.arrived["Billing"] == [one(first), one(last)]
    assert list(world.store.rows) == [bad.key]
    assert world.store.attempts == {}
    assert world.ends(run) == [slice_end("a trigger rolls back", given=3, claimed=2, left=1)]
