"""What is refused before a sweep claims anything, with queues in memory.

What the gate makes of it is in tests/acceptance/test_missing_queues_gate.py.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest

from duesweep.core.errors import (
    ConfigError,
    DestinationError,
    DuesweepError,
    QueueNotFoundError,
    StoreError,
    UnreadableAddressError,
)
from duesweep.core.policy import BatchLimits, LedgerWriter, Retry
from duesweep.core.routing import Route
from duesweep.queues.base import Queue
from duesweep.queues.routed import RoutedQueue
from duesweep.stores.base import DriverSession, Horizon, TaskSession
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
