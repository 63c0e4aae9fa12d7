"""What is refused before a sweep claims anything, with queues in memory."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest

from duesweep.core.ledger_writer import LedgerWriter
from duesweep.core.policy import BatchLimits, Retry
from duesweep.core.routing import Route
from duesweep.errors import (
    ConfigError,
    DestinationError,
    QueueNotFoundError,
    StoreError,
    UnreadableAddressError,
)
from duesweep.queues.base import Queue
from duesweep.queues.routed import RoutedQueue
from duesweep.stores.base import DriverSession, TaskSession
from duesweep.stores.values import Horizon
from duesweep.sweep.job import SweepContext
from duesweep.sweep.queues_check import refuse_missing_queues
from duesweep_testing.builders import DUE
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_queue import MemoryQueue, MemoryQueueSession

ROUTES = (
    Route("*@HOST-1", "near", "{queue}"),
    Route("*@HOST-2", "far", "{queue}"),
)


class _Session:
    """A driver's session that knows destinations."""

    def __init__(self, due: Sequence[str], waiting: Sequence[str] = ()) -> None:
        self._due = due
        self._waiting = waiting
        self.asked_all = False

    def due_destinations(self, horizon: Horizon) -> Sequence[str]:
        assert horizon.before == DUE
        return self._due

    def stored_destinations(self) -> Sequence[str]:
        self.asked_all = True
        return [*self._due, *self._waiting]


class _Unreachable(MemoryQueue):
    """Takes no session."""

    @contextmanager
    def open(self, store: TaskSession) -> Iterator[Any]:  # noqa: ARG002 - the queue's contract
        raise StoreError("nobody listens", transient=True)
        yield


class _ClosedSession(MemoryQueueSession):
    def resolve(self, address: str | None) -> str:
        raise DestinationError(f"{address} is closed to the sweeper's user")


class _Closed(MemoryQueue):
    """Shows this role no queue."""

    @contextmanager
    def open(self, store: TaskSession) -> Iterator[MemoryQueueSession]:  # noqa: ARG002 - as above
        yield _ClosedSession(self, None)


def _routed(near: MemoryQueue | None = None, far: MemoryQueue | None = None) -> RoutedQueue:
    queues = {
        "near": near or MemoryQueue("Billing", "Shipping"),
        "far": far or MemoryQueue("Billing", own_transaction=True),
    }
    return RoutedQueue(queues, ROUTES, ("Sales.Orders",))


def _refusal(queue: Queue, session: object, *, is_of_due: bool = True) -> str | None:
    """Why a sweep may not begin; None: it may."""
    context = SweepContext(
        MemoryStore(), queue, "", LedgerWriter.SPARK, BatchLimits(), Retry(), 1_000, None
    )
    horizon = Horizon(DUE, DUE) if is_of_due else None
    try:
        refuse_missing_queues(context, cast("DriverSession", session), horizon)
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


def test_without_routes_the_connection_is_the_default_one() -> None:
    assert "queues.default has none" in _refusal(MemoryQueue("Billing"), _Session(["Biling"]))


def test_all_connections_that_have_none_are_named() -> None:
    text = _refusal(_routed(), _Session(["A@HOST-1", "B@HOST-2"]))

    assert "queues.far has none" in text
    assert "queues.near has none" in text
    assert "correct [[route]] or [queues.far] and [queues.near]" in text


def test_one_queue_that_is_there_is_enough_for_its_connection() -> None:
    session = _Session(["A@HOST-1", "B@HOST-1", "Shipping@HOST-1"])

    assert _refusal(_routed(), session) is None

    assert not session.asked_all, "all messages were read without need"


def test_one_queue_that_is_there_is_not_enough_for_another_connection() -> None:
    text = _refusal(_routed(), _Session(["Billing@HOST-1", "Shipping@HOST-2"]))

    assert text.startswith("queues.far has none of the queues that its messages go to: Shipping")
    assert "near" not in text


def test_queue_of_messages_that_wait_is_enough() -> None:
    assert _refusal(_routed(), _Session(["Gone@HOST-1"], waiting=["Billing@HOST-1"])) is None


def test_what_only_waits_holds_up_nobody() -> None:
    assert _refusal(_routed(), _Session(["Billing@HOST-1"], waiting=["Gone@HOST-2"])) is None


def test_nothing_due_is_refused_never() -> None:
    session = _Session([], waiting=["Gone@HOST-1"])

    assert _refusal(_routed(), session) is None

    assert not session.asked_all


def test_what_waits_is_refused_where_somebody_asks_for_all() -> None:
    session = _Session([], waiting=["Gone@HOST-1"])

    assert "queues.near has none" in _refusal(_routed(), session, is_of_due=False)


@pytest.mark.parametrize(
    "far", [_Unreachable(own_transaction=True), _Closed(own_transaction=True)], ids=["down", "shut"]
)
def test_connection_that_cannot_be_asked_is_not_refused(far: MemoryQueue) -> None:
    assert _refusal(_routed(far=far), _Session(["Billing@HOST-2", "Billing@HOST-1"])) is None


def test_connection_out_of_reach_is_no_excuse_for_another() -> None:
    session = _Session(["Billing@HOST-2", "Biling@HOST-1"])

    text = _refusal(_routed(far=_Unreachable(own_transaction=True)), session)

    assert text.startswith("queues.near has none")


def test_destinations_that_no_route_takes_are_refused_where_there_are_no_others() -> None:
    assert _refusal(_routed(), _Session(["Billing@FAR", "Shipping@FAR"])) == (
        "No [[route]] takes any of the messages' destinations: Billing@FAR, Shipping@FAR. Nothing "
        "was claimed; add a [[route]] that takes them"
    )
    assert _refusal(_routed(), _Session(["Billing@FAR", "Billing@HOST-1"])) is None
    assert _refusal(_routed(), _Session(["Billing@FAR"], waiting=["Billing@HOST-1"])) is None


def test_store_whose_session_does_not_know_destinations_is_not_asked() -> None:
    class Broken(MemoryQueue):
        @contextmanager
        def open(self, store: TaskSession) -> Iterator[Any]:
            raise QueueNotFoundError(f"asked for {store}")
            yield

    assert _refusal(Broken(), object()) is None


class _PoisonSession(MemoryQueueSession):
    def resolve(self, address: str | None) -> str:
        raise UnreadableAddressError(f"{address} is no address")


class _Poison(MemoryQueue):
    """Can read no address."""

    @contextmanager
    def open(self, store: TaskSession) -> Iterator[MemoryQueueSession]:  # noqa: ARG002 - as above
        yield _PoisonSession(self, None)


def test_destination_that_cannot_be_read_is_one_messages_fault_and_stops_no_sweep() -> None:
    assert _refusal(_Poison(), _Session(["a[b"])) is None
