"""The short form of a batch, and when it gives way to the careful one."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from duesweep.core.message import Message
from duesweep.core.policy import CLAIM_SECONDS, BatchLimits, BreakerLimits
from duesweep.errors import (
    DestinationError,
    DuesweepError,
    RefusedMessageError,
    StoreError,
    TransactionLostError,
    UnusualBatchError,
)
from duesweep.queues.base import QueueSession
from duesweep.stores.base import TaskSession
from duesweep_testing.builders import DelayedRow, delayed_row
from duesweep_testing.memory_queue import MemoryQueue, MemoryQueueSession
from duesweep_testing.memory_sessions import MemoryTaskSession
from duesweep_testing.sweeps import open_sweep
from support.dispatch_world import World, one, slice_end
from support.taking import TakingSession, TakingStore


def _world(*rows: DelayedRow) -> tuple[World, TakingStore]:
    store = TakingStore(*rows)
    return World(store), store


def _rows(count: int, destination: str = "Billing") -> list[DelayedRow]:
    return [delayed_row(destination) for _ in range(count)]


def test_usual_batches_are_taken_and_never_claimed() -> None:
    rows = [*_rows(3), *_rows(2, "Shipping")]
    world, store = _world(*rows)

    run = world.sweep(limits=BatchLimits(rows=4))

    assert (store.taken, store.claimed) == ([4, 1], [])
    assert world.queue.arrived["Billing"] == [one(row) for row in rows[:3]]
    assert world.queue.arrived["Shipping"] == [one(row) for row in rows[3:]]
    assert world.counted(run) == (5, 0)
    assert world.ends(run) == [slice_end(given=5, claimed=5)]


def test_batch_with_an_unknown_queue_is_run_again_with_care_and_charges_that_message_once() -> None:
    known, unknown = _rows(3), delayed_row("Nowhere")
    world, store = _world(*known, unknown)

    run = world.sweep()

    assert (store.taken, store.claimed) == ([4], [4])
    assert world.queue.arrived["Billing"] == [one(row) for row in known]
    assert {key: counter.attempts for key, counter in store.attempts.items()} == {unknown.key: 1}
    assert world.counted(run) == (3, 1)
    assert world.ends(run) == [slice_end(given=4, claimed=4)]


def test_unreadable_message_fails_once() -> None:
    broken = DelayedRow(headers="{")
    world, store = _world(*_rows(2), broken)

    run = world.sweep()

    assert world.counted(run) == (2, 1)
    assert list(store.rows) == [broken.key]


def test_refused_message_fails_once_and_the_others_arrive_once() -> None:
    rows = _rows(4)
    world, store = _world(*rows)
    world.trouble("Billing", RefusedMessageError("too long"), rows[1].key)

    run = world.sweep()

    assert world.queue.arrived["Billing"] == [one(row) for row in (rows[0], *rows[2:])]
    assert {key: counter.attempts for key, counter in store.attempts.items()} == {rows[1].key: 1}
    assert world.counted(run) == (3, 1)


def test_after_three_unusual_batches_a_slice_takes_no_more() -> None:
    world, store = _world(*[row for _ in range(5) for row in (*_rows(1), *_rows(1, "Nowhere"))])

    world.sweep(limits=BatchLimits(rows=2))

    assert (store.taken, store.claimed) == ([2, 2, 2], [2, 2, 2, 2, 2])
    assert len(world.queue.arrived["Billing"]) == 5


def test_one_unusual_batch_does_not_end_the_short_form() -> None:
    world, store = _world(*_rows(2), *_rows(2, "Nowhere"), *_rows(2))

    world.sweep(limits=BatchLimits(rows=2))

    assert (store.taken, store.claimed) == ([2, 2, 2], [2])


def test_queue_with_a_transaction_of_its_own_never_takes() -> None:
    """A rollback of the store would not undo what it has delivered."""
    store = TakingStore(*_rows(3))
    world = World(store, MemoryQueue("Billing", own_transaction=True))

    world.sweep()

    assert (store.taken, store.claimed) == ([], [3])
    assert len(world.queue.arrived["Billing"]) == 3


class _CarefulSession(MemoryQueueSession):
    """Has the contract's own answer to `append`."""

    append = QueueSession.append


class _CarefulQueue(MemoryQueue):
    @contextmanager
    def open(self, store: TaskSession) -> Iterator[MemoryQueueSession]:
        assert isinstance(store, MemoryTaskSession)
        yield _CarefulSession(self, store)


def test_queue_that_cannot_do_without_savepoints_never_takes() -> None:
    store = TakingStore(*_rows(3))
    world = World(store, _CarefulQueue("Billing"))

    world.sweep()

    assert (store.taken, store.claimed) == ([], [3])
    assert len(world.queue.arrived["Billing"]) == 3


@pytest.mark.parametrize("error", [TransactionLostError("deadlock"), UnusualBatchError("odd")])
def test_batch_that_is_given_up_once_is_delivered_once(error: DuesweepError) -> None:
    world, store = _world(*_rows(3))
    errors: list[DuesweepError | None] = [error]
    world.queue.trouble["Billing"] = lambda _: errors.pop() if errors else None

    run = world.sweep()

    assert (store.taken, store.claimed) == ([3], [3])
    assert len(world.queue.arrived["Billing"]) == 3
    assert world.counted(run) == (3, 0)


def test_destination_that_takes_nothing_ends_the_short_form_for_the_slice() -> None:
    """Each form waits once for a table that is locked, and no batch after that."""
    world, store = _world(*_rows(1), *_rows(1, "Shipping"), *_rows(1), *_rows(1, "Shipping"))
    tried: list[str] = []

    def lock(message: Message) -> DestinationError:
        tried.append(message.key)
        return DestinationError("Shipping is locked")

    world.queue.trouble["Shipping"] = lock

    run = world.sweep(limits=BatchLimits(rows=2), breaker=BreakerLimits(trigger_seconds=0))

    assert (store.taken, store.claimed, len(tried)) == ([2], [2, 2], 2)
    assert world.ends(run) == [slice_end("Shipping is locked", given=4, claimed=2, left=2)]
    assert store.attempts == {}


def test_derived_session_does_not_inherit_the_short_form_unawares() -> None:
    class Derived(TakingSession):
        pass

    class DerivedStore(TakingStore):
        @contextmanager
        def open_task(self) -> Iterator[Derived]:
            yield Derived(self)

    store = DerivedStore(*_rows(2))

    World(store).sweep()

    assert (store.taken, store.claimed) == ([], [2])


def test_destination_that_takes_messages_again_gets_the_others_in_the_short_form() -> None:
    world, store = _world(*_rows(2), *_rows(1, "Shipping"), *_rows(5))
    times = iter(range(2))
    world.queue.trouble["Shipping"] = lambda _: (
        DestinationError("Shipping is locked") if next(times, None) is not None else None
    )
    world.queue.trouble["Billing"] = lambda _: world.clock.sleep(1)

    run = world.sweep(limits=BatchLimits(rows=2))

    # Only the batch that failed, and the message that tries the destination, take the other form.
    assert (store.taken, store.claimed) == ([2, 2, 2, 2], [2, 1])
    assert (store.rows, store.attempts) == ({}, {})
    assert world.ends(run) == [slice_end(given=8, claimed=8)]


def test_service_that_fails_for_good_ends_the_slice_and_is_not_asked_again() -> None:
    world, store = _world(*_rows(3))
    world.trouble("Billing", StoreError("the server is gone", transient=False))

    run = world.sweep()

    assert (store.taken, store.claimed) == ([3], [])
    assert len(store.rows) == 3
    assert world.ends(run) == [slice_end("the server is gone", given=3)]


def test_batch_that_takes_too_long_is_rolled_back_and_goes_in_parts() -> None:
    first, second = delayed_row("Billing"), delayed_row("Shipping")
    world, store = _world(first, second)

    def slow(_: Message) -> None:
        world.clock.sleep(CLAIM_SECONDS + 1)

    world.queue.trouble["Billing"] = slow

    run = world.sweep()

    assert (store.taken, store.claimed) == ([2], [2, 1])
    assert world.queue.arrived["Billing"] == [one(first)]
    assert world.queue.arrived["Shipping"] == [one(second)]
    assert world.counted(run) == (2, 0)


def test_message_that_is_not_due_yet_stays() -> None:
    world, store = _world(*_rows(1))
    early = delayed_row("Billing", due=store.now + timedelta(minutes=1))
    store.rows[early.key] = early
    run = open_sweep(store)
    run = replace(run, horizon=run.horizon.looking_ahead(timedelta(minutes=2)))

    world.run_slice(run)

    assert list(store.rows) == [early.key]
    assert len(world.queue.arrived["Billing"]) == 1
