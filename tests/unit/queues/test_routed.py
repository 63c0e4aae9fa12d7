"""Several connections as one queue, in a dispatch."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from duesweep.core.errors import (
    ConfigError,
    DestinationError,
    Problem,
    QueueError,
    SilentServiceError,
    StoreError,
)
from duesweep.core.policy import BatchLimits
from duesweep.core.routing import Route
from duesweep.queues.routed import RoutedQueue
from duesweep.stores.base import TaskSession
from duesweep_testing.builders import DelayedRow, delayed_row
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_queue import MemoryQueue
from duesweep_testing.memory_state import MemoryCounter
from support.dispatch_world import World, one, slice_end

ROUTES = (
    Route("*@HOST-1", "near", "{queue}"),
    Route("*@HOST-2", "far", "{queue}"),
    Route("error", "far", "{queue}"),
    Route("Sales.Orders", "near", "{queue}"),
)


class RoutedWorld(World):
    """Connection `near` shares the store's transaction, `far` has one of its own."""

    def __init__(self, *rows: DelayedRow) -> None:
        super().__init__(MemoryStore(rows))
        self.near = MemoryQueue("Billing")
        self.far = MemoryQueue("Billing", "Shipping", "error", own_transaction=True)
        self.routed = RoutedQueue({"near": self.near, "far": self.far}, ROUTES, ("Sales.Orders",))
        self.queue: Any = self.routed


def test_each_destination_goes_to_its_own_connection() -> None:
    near, far, own = delayed_row("Billing@HOST-1"), delayed_row("Billing@HOST-2"), delayed_row(None)
    world = RoutedWorld(near, far, own)

    world.sweep()

    assert world.near.arrived["Billing"] == [one(near)]
    assert world.far.arrived["Billing"] == [one(far)]
    assert world.near.arrived["Sales.Orders"] == [one(own)]
    assert world.store.rows == {}


def test_destination_without_a_route_fails_alone() -> None:
    lost, fine = delayed_row("Billing"), delayed_row("Billing@HOST-1")
    world = RoutedWorld(lost, fine)

    world.sweep()

    assert list(world.store.rows) == [lost.key]
    assert world.store.attempts[lost.key].attempts == 1
    assert world.near.arrived["Billing"] == [one(fine)]


class _Unreachable(MemoryQueue):
    """Takes no session."""

    @contextmanager
    def open(self, store: TaskSession) -> Iterator[Any]:  # noqa: ARG002 - the queue's contract
        raise StoreError("nobody listens", transient=True)
        yield


def test_connection_out_of_reach_blocks_its_own_destinations_only() -> None:
    far, near = delayed_row("Billing@HOST-2"), delayed_row("Billing@HOST-1")
    world = RoutedWorld(far, near)
    gone = _Unreachable(own_transaction=True)
    world.queue = RoutedQueue({"near": world.near, "far": gone}, ROUTES, ("Sales.Orders",))

    run = world.sweep()

    assert list(world.store.rows) == [far.key]
    assert world.store.attempts == {}
    assert world.near.arrived["Billing"] == [one(near)]
    assert world.ends(run) == [slice_end("queues.far: nobody listens", given=2, claimed=1, left=1)]


def test_connection_that_breaks_in_a_batch_undoes_all_it_had_of_it() -> None:
    first, breaking = delayed_row("Billing@HOST-2"), delayed_row("Shipping@HOST-2")
    near = delayed_row("Billing@HOST-1")
    world = RoutedWorld(first, near, breaking)
    world.far.trouble["Shipping"] = lambda _: QueueError("cut off", transient=True)

    run = world.sweep()

    assert world.far.arrived["Billing"] == [], "delivered, though its connection is lost"
    assert world.near.arrived["Billing"] == [one(near)], "delivered twice, or not at all"
    assert set(world.store.rows) == {first.key, breaking.key}
    assert world.store.attempts == {}
    assert world.ends(run) == [slice_end("queues.far: cut off", given=3, claimed=1, left=2)]


def _let_time_fly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ten seconds pass between any two looks at the clock."""
    now = count(step=10)
    monkeypatch.setattr(time, "monotonic", lambda: next(now))


def test_connection_that_broke_is_opened_again_and_takes_what_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _let_time_fly(monkeypatch)
    rows = [delayed_row("Billing@HOST-2") for _ in range(4)] + [delayed_row("Billing@HOST-1")]
    world = RoutedWorld(*rows)
    times = iter(range(2))
    world.far.trouble["Billing"] = lambda _: (
        QueueError("cut off", transient=True) if next(times, None) is not None else None
    )

    run = world.sweep()

    assert sorted(map(str, world.far.arrived["Billing"])) == sorted(str(one(r)) for r in rows[:4])
    assert world.near.arrived["Billing"] == [one(rows[4])]
    assert world.ends(run) == [slice_end(given=5, claimed=5)]


def test_connection_that_fell_silent_is_not_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _let_time_fly(monkeypatch)
    world = RoutedWorld(delayed_row("Billing@HOST-2"))
    silence = SilentServiceError("no answer for 20 s", transient=True)
    asked: list[str] = []
    world.far.trouble["Billing"] = lambda m: asked.append(m.key) or silence

    run = world.sweep()

    assert len(asked) == 1
    assert world.clock.seconds() < 1
    assert world.ends(run) == [slice_end("queues.far: no answer for 20 s", given=1, left=1)]


def test_locked_destination_blocks_no_other_of_its_connection() -> None:
    locked, fine = delayed_row("Shipping@HOST-2"), delayed_row("Billing@HOST-2")
    world = RoutedWorld(locked, fine)
    world.far.trouble["Shipping"] = lambda _: DestinationError("locked")

    world.sweep(limits=BatchLimits(rows=1))

    assert world.far.arrived["Billing"] == [one(fine)]
    assert list(world.store.rows) == [locked.key]


def test_exhausted_message_goes_to_the_routed_error_queue() -> None:
    world = RoutedWorld(row := delayed_row("Nowhere@HOST-1"))
    world.store.attempts[row.key] = MemoryCounter(4)

    run = world.sweep(error_queue="error")

    assert world.store.rows == {}
    assert len(world.far.arrived["error"]) == 1
    assert [entry.queue for entry in world.exhausted(run)] == ["error"]


def test_error_queue_is_asked_for_on_its_route() -> None:
    queue = RoutedWorld().routed

    queue.check("error")
    with pytest.raises(ConfigError, match=r"retry\.error_queue: No"):
        queue.check("mistakes")
    with pytest.raises(ConfigError, match="There is no queue none"):
        queue.check("none@HOST-1")


def test_deliveries_are_exactly_once_where_all_connections_share_the_stores_transaction() -> None:
    world = RoutedWorld()

    assert not world.routed.shares_transaction
    assert RoutedQueue({"near": world.near}, ROUTES, ("x",)).shares_transaction


class _Noticing(MemoryQueue):
    """Has something to tell of its tables, or is out of reach."""

    found: tuple[Problem, ...] | StoreError = ()

    def notices(self) -> tuple[Problem, ...]:
        if isinstance(self.found, StoreError):
            raise self.found
        return self.found


def test_notices_on_tables_are_those_of_all_connections_that_are_in_reach() -> None:
    near, far, silent = _Noticing(), _Noticing(), MemoryQueue()
    near.found = StoreError("nobody listens", transient=True)
    far.found = (Problem("a", "b"),)

    routed = RoutedQueue({"near": near, "far": far, "silent": silent}, ROUTES, ("x",))

    assert routed.notices() == [Problem("a", "b")]
