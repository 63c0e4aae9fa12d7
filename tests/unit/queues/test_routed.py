"""Several connections as one queue, in a dispatch, and refusals before a sweep begins.

Sweeps with them are in tests/acceptance/test_missing_queues.py.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, cast

import pytest

from duesweep.core.errors import (
    ConfigError,
    DestinationError,
    DuesweepError,
    Problem,
    QueueError,
    QueueNotFoundError,
    SilentServiceError,
    StoreError,
    UnreadableAddressError,
)
from duesweep.core.policy import BatchSize, Retry
from duesweep.core.routing import Route
from duesweep.queues.base import Queue
from duesweep.queues.routed import RoutedQueue
from duesweep.stores.base import DriverSession
from duesweep.stores.due import Due, Horizon
from duesweep.stores.task import TaskSession
from duesweep.sweep.queues_check import refuse_missing_queues
from duesweep_testing.builders import DUE, DelayedRow, delayed_row
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_queue import MemoryQueue, MemoryQueueSession
from duesweep_testing.memory_state import MemoryCounter
from duesweep_testing.sweeps import context_of
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
    """Refuses sessions."""

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

    world.sweep(batch_size=BatchSize(rows=1))

    assert world.far.arrived["Billing"] == [one(fine)]
    assert list(world.store.rows) == [locked.key]


def test_exhausted_message_goes_to_the_routed_error_queue() -> None:
    world = RoutedWorld(row := delayed_row("Nowhere@HOST-1"))
    world.store.attempts[row.key] = MemoryCounter(4)

    run = world.sweep(retry=Retry(error_queue="error"))

    assert world.store.rows == {}
    assert len(world.far.arrived["error"]) == 1
    assert [entry.queue for entry in world.exhausted(run)] == ["error"]


def test_error_queue_is_asked_for_on_its_route() -> None:
    world = RoutedWorld()
    queue = world.routed

    with world.store.open_driver() as store:
        queue.check("error", store)
        with pytest.raises(ConfigError, match=r"retry\.error_queue: No"):
            queue.check("mistakes", store)
        with pytest.raises(ConfigError, match="There is no queue none"):
            queue.check("none@HOST-1", store)


def test_deliveries_are_exactly_once_where_all_connections_share_the_stores_transaction() -> None:
    world = RoutedWorld()

    assert not world.routed.shares_transaction
    assert RoutedQueue({"near": world.near}, ROUTES, ("x",)).shares_transaction


class _Noticing(MemoryQueue):
    """Has notices on its tables, or is out of reach."""

    found: tuple[Problem, ...] | StoreError = ()

    def notices(self, store: DriverSession) -> tuple[Problem, ...]:  # noqa: ARG002 - it is alone
        if isinstance(self.found, StoreError):
            raise self.found
        return self.found


def test_notices_on_tables_are_those_of_all_connections_that_are_in_reach() -> None:
    near, far, silent = _Noticing(), _Noticing(), MemoryQueue()
    near.found = StoreError("nobody listens", transient=True)
    far.found = (Problem("a", "b"),)

    routed = RoutedQueue({"near": near, "far": far, "silent": silent}, ROUTES, ("x",))

    with MemoryStore().open_driver() as store:
        assert routed.notices(store) == [Problem("a", "b")]


_ROUTES = (
    Route("*@HOST-1", "near", "{queue}"),
    Route("*@HOST-2", "far", "{queue}"),
)


class _Session:
    """A driver's session that knows destinations."""

    def __init__(self, due: Sequence[str], waiting: Sequence[str] = ()) -> None:
        self._due = due
        self._waiting = waiting
        self.asked_all = False

    def destinations(self, horizon: Horizon | None) -> Sequence[str]:
        if horizon is None:
            self.asked_all = True
            return [*self._due, *self._waiting]
        assert horizon.before == DUE
        return self._due


class _Refusing(MemoryQueue):
    """Its sessions resolve no address."""

    def __init__(self, error: DuesweepError) -> None:
        super().__init__(own_transaction=True)
        self.error = error

    @contextmanager
    def open(self, store: TaskSession) -> Iterator[MemoryQueueSession]:  # noqa: ARG002 - as above
        session = MemoryQueueSession(self, None)
        session.resolve = self._refuse  # type: ignore[method-assign]
        yield session

    def _refuse(self, _: str | None) -> str:
        raise self.error


CLOSED = _Refusing(DestinationError("It is closed to the sweeper's user"))
POISON = _Refusing(UnreadableAddressError("It is no address"))
UNREACHED = _Unreachable(own_transaction=True)


def _routed(near: MemoryQueue | None = None, far: MemoryQueue | None = None) -> RoutedQueue:
    queues = {
        "near": near or MemoryQueue("Billing", "Shipping"),
        "far": far or MemoryQueue("Billing", own_transaction=True),
    }
    return RoutedQueue(queues, _ROUTES, ("Sales.Orders",))


def _refusal(queue: Queue, session: object, *, is_of_due: bool = True) -> str | None:
    """Why a sweep may not begin; None: it may."""
    horizon = Horizon(DUE, DUE) if is_of_due else None
    try:
        refuse_missing_queues(context_of(MemoryStore(), queue), cast(Due, session), horizon)
    except ConfigError as error:
        return str(error)
    return None


def test_connection_with_none_of_the_queues_is_refused_in_one_sentence() -> None:
    assert _refusal(_routed(), _Session(["Biling@HOST-1", "Shiping@HOST-1"])) == (
        "queues.near has none of the queues that its messages go to: Biling@HOST-1 goes to Biling "
        "(There is no queue Biling), Shiping@HOST-1 goes to Shiping (There is no queue Shiping). "
        "Nothing was claimed; correct [[route]] or [queues.near], or, if these queues are gone for "
        "good, route their messages to a queue that is there"
    )


def test_of_many_destinations_some_are_named() -> None:
    text = _refusal(_routed(), _Session([f"Q{i}@HOST-1" for i in range(9)]))

    assert "Q2@HOST-1 goes to Q2 (There is no queue Q2) and 6 more. Nothing" in text


def test_all_connections_that_have_none_are_named() -> None:
    text = _refusal(_routed(), _Session(["A@HOST-1", "B@HOST-2"]))

    assert "queues.far has none" in text
    assert "queues.near has none" in text
    assert "correct [[route]] or [queues.far] and [queues.near]" in text


REFUSED = {
    "without routes": (MemoryQueue("Billing"), ["Biling"], "queues.default has none"),
    "one out of reach is no excuse for another": (
        _routed(far=UNREACHED), ["Billing@HOST-2", "Biling@HOST-1"], "queues.near has none"),
    "no route": (
        _routed(), ["Billing@FAR", "Shipping@FAR"],
        "No [[route]] takes any of the messages' destinations: Billing@FAR, Shipping@FAR. "
        "Nothing was claimed; add a [[route]] that takes them"),
}  # fmt: skip
MAY_BEGIN = {
    "one that is there is enough": (_routed(), ["A@HOST-1", "B@HOST-1", "Shipping@HOST-1"], []),
    "what only waits holds up nobody": (_routed(), ["Billing@HOST-1"], ["Gone@HOST-2"]),
    "nothing is due": (_routed(), [], ["Gone@HOST-1"]),
    "a connection is down": (_routed(far=UNREACHED), ["Billing@HOST-2", "Billing@HOST-1"], []),
    "a connection is shut": (_routed(far=CLOSED), ["Billing@HOST-2", "Billing@HOST-1"], []),
    "no route for one of them": (_routed(), ["Billing@FAR", "Billing@HOST-1"], []),
    "no route for what is due": (_routed(), ["Billing@FAR"], ["Billing@HOST-1"]),
}


@pytest.mark.parametrize(("queue", "due", "begins"), REFUSED.values(), ids=REFUSED)
def test_connection_without_any_of_its_queues_is_refused(
    queue: Queue, due: list[str], begins: str
) -> None:
    assert str(_refusal(queue, _Session(due))).startswith(begins)


@pytest.mark.parametrize(("queue", "due", "waiting"), MAY_BEGIN.values(), ids=MAY_BEGIN)
def test_sweep_may_begin(queue: Queue, due: list[str], waiting: list[str]) -> None:
    session = _Session(due, waiting)

    assert _refusal(queue, session) is None
    assert session.asked_all == (due == ["Billing@FAR"]), "all messages were read without need"


def test_what_waits_is_refused_where_somebody_asks_for_all() -> None:
    session = _Session([], waiting=["Gone@HOST-1"])

    assert "queues.near has none" in _refusal(_routed(), session, is_of_due=False)


def test_store_whose_session_does_not_know_destinations_is_not_asked() -> None:
    assert _refusal(_Refusing(QueueNotFoundError("It was asked")), _Session([])) is None


def test_destination_that_cannot_be_read_is_one_messages_fault_and_stops_no_sweep() -> None:
    assert _refusal(POISON, _Session(["a[b"])) is None
