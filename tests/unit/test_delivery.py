"""Delivery of a batch to a queue that answers late and can defer messages."""

import gc
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from duesweep.core.errors import (
    DestinationError,
    DuesweepError,
    MessageError,
    QueueNotFoundError,
    RefusedMessageError,
    UnreadableHeadersError,
)
from duesweep.core.message import Delivered, Faulty, Message, Outcome, Stays, Why
from duesweep.core.policy import CLAIM_SECONDS
from duesweep_testing.builders import DUE, DelayedRow, message
from support.delivery_world import LateQueue, World, due, early

REFUSED = RefusedMessageError("too long")
GONE = QueueNotFoundError("There is no such queue")
LOCKED = DestinationError("it is locked")
# The reasons for which messages with these marks stay. Others arrived (a), were deferred (d), or
# are charged with their fault (f).
_MARKS = {Why.RELEASED: "r", Why.EARLY: "e", Why.BLOCKED: "b", Why.LEFT: "u"}


def _message(sign: str) -> Message:
    """Due for Billing or Shipping: `B`, `S`; not due for 30 s: `b`, `s`. Unreadable: `?`, `!`."""
    if sign in "?!":
        return message(DelayedRow(headers="{", due=DUE + timedelta(seconds=30 * (sign == "!"))))
    name = {"b": "Billing", "s": "Shipping", "n": "Nowhere"}[sign.lower()]
    return due(name) if sign.isupper() else early(name)


@dataclass(frozen=True)
class Case:
    """A batch, the outcome of each message, and its reason: answers by place, places without one,
    and faults of a step. `reason`: why destinations are not used after that.
    """

    batch: str
    becomes: str
    late: Mapping[int, MessageError] = field(default_factory=dict)
    silent: tuple[int, ...] = ()
    trouble: Mapping[tuple[str, str], DuesweepError] = field(default_factory=dict)
    reason: str | None = None


CASES = {
    "a late refusal": Case("BBS", "afa", late={1: REFUSED}),
    "no answer": Case("BbB", "rra", silent=(0, 1)),
    "what is not due": Case("Bbs", "add"),
    "a late refusal of what is not due": Case("b", "e", late={0: REFUSED}),
    "no queue": Case("N", "f", trouble={("resolve", "Nowhere"): GONE}),
    "no queue for what is not due": Case("n", "e", trouble={("resolve", "Nowhere"): GONE}),
    "no queue for both": Case("Bb", "fe", trouble={("resolve", "Billing"): GONE}),
    "headers that cannot be read": Case("?!", "fe"),
    "a ladder that fails": Case(
        "Bb", "au", trouble={("defer", "Billing"): LOCKED}, reason="it is locked"
    ),
    "a queue that cannot be bound to it": Case("Bb", "ae", trouble={("defer", "Billing"): GONE}),
    "a destination that takes nothing": Case(
        "BbS", "bba", trouble={("deliver", "Billing"): LOCKED}, reason="it is locked"
    ),
}


def _marks(outcomes: list[Outcome], batch: list[Message]) -> str:
    told = [(one.message.key, _mark(one)) for one in outcomes]
    assert sorted(key for key, _ in told) == sorted(one.key for one in batch), "each is told once"
    return "".join(dict(told)[one.key] for one in batch)


def _mark(one: Outcome) -> str:
    if isinstance(one, Delivered):
        return "d" if one.is_deferred else "a"
    return _MARKS[one.why] if isinstance(one, Stays) else "f"


def _faulty(outcomes: list[Outcome]) -> list[Faulty]:
    return [one for one in outcomes if isinstance(one, Faulty)]


@pytest.mark.parametrize("case", CASES)
def test_each_message_of_a_batch_is_told_by_what_became_of_it(case: str) -> None:
    given = CASES[case]
    batch = [_message(sign) for sign in given.batch]
    late = {batch[place].key: error for place, error in given.late.items()}
    silent = {batch[place].key for place in given.silent}
    world = World(LateQueue(late=late, silent=silent, trouble=dict(given.trouble)))

    outcomes = world.deliver_all(*batch)

    assert _marks(outcomes, batch) == given.becomes
    delivered = [one for one in outcomes if isinstance(one, Delivered)]
    assert {one.queue for one in delivered} <= {"Billing", "Shipping"}
    known = [*given.late.values(), *given.trouble.values()]
    for charged, error in _faulty(outcomes):
        unreadable = isinstance(charged.headers, UnreadableHeadersError)
        assert isinstance(error, UnreadableHeadersError) if unreadable else error in known
    assert world.destinations.blocked_reason == given.reason
    # Once a batch, and not for a batch that sent nothing.
    has_sent = set(given.becomes) & set("adr") or given.late
    assert world.queue.waited == ([CLAIM_SECONDS] if has_sent else [])


def test_answers_get_a_second_however_late_a_batch_is() -> None:
    world = World(LateQueue())
    world.queue.on_step = lambda step: (
        world.clock.advance(2 * CLAIM_SECONDS) if step == "resolve" else None
    )

    first, second = world.deliver_all(due(), due("Shipping"))

    assert world.queue.waited == [1.0]
    assert isinstance(first, Delivered)
    assert second == Stays(second.message, Why.UNREACHED)
    assert second.message.destination == "Shipping"


def test_messages_that_are_not_due_yet_are_deferred_as_far_as_the_queue_can() -> None:
    now, soon, edge, far = due(), early(seconds=30), early(seconds=61), early(seconds=61.000001)
    world = World(LateQueue(longest=60))

    outcomes = world.deliver_all(far, edge, now, soon)

    assert world.queue.delivered == [("Billing", [now.key])]
    assert world.queue.deferred == [("Billing", [edge.key, soon.key])]
    assert outcomes == [
        Delivered(now, "Billing"),
        Stays(far, Why.EARLY),
        Delivered(edge, "Billing", is_deferred=True),
        Delivered(soon, "Billing", is_deferred=True),
    ]


def test_early_message_that_comes_due_while_its_refusal_is_waited_for_is_not_charged() -> None:
    soon = early(seconds=2)
    world = World(LateQueue(late={soon.key: REFUSED}))
    world.queue.on_step = lambda step: world.clock.advance(3) if step == "confirm" else None

    assert world.deliver_all(soon) == [Stays(soon, Why.EARLY)]


def test_destination_without_a_ladder_still_gets_what_is_due_in_later_batches() -> None:
    world = World(LateQueue(trouble={("defer", "Billing"): LOCKED}))
    world.deliver_all(early())
    world.queue.trouble.clear()
    now, soon = due(), early()

    result = world.deliver_all(now, soon)

    assert _marks(result, [now, soon]) == "au"
    assert world.queue.deferred == [], "tried again in the same slice"


def test_letters_that_were_refused_late_or_not_confirmed_have_not_arrived() -> None:
    sent = [due(), due(), due(), early()]
    world = World(LateQueue(late={sent[0].key: REFUSED}, silent={sent[1].key}))

    arrived = world.delivery.deliver_error_messages("error", sent)

    # They go at once, however early their messages are.
    assert arrived == ("error", {sent[2].key, sent[3].key}, {sent[0].key: REFUSED})
    assert world.queue.delivered == [("error", [one.key for one in sent])]
    assert world.queue.waited == [CLAIM_SECONDS]


@pytest.mark.parametrize(("confirmed", "is_closed"), [(0, False), (1, True)])
def test_error_queue_that_failed_is_used_again_once_it_confirms(
    confirmed: int, *, is_closed: bool
) -> None:
    sent = [due() for _ in range(2)]
    world = World(LateQueue(silent={one.key for one in sent[confirmed:]}))
    world.destinations.fail("error", "it was locked", took_seconds=0)
    world.clock.advance(1)

    world.delivery.deliver_error_messages("error", sent)

    assert (world.destinations.room("error") is None) is is_closed


def test_queue_that_is_missing_is_looked_for_once_a_slice() -> None:
    world = World(LateQueue(trouble={("resolve", "Nowhere"): QueueNotFoundError("gone")}))
    steps: list[str] = []
    world.queue.on_step = steps.append

    first = world.deliver_all(due("Nowhere"))
    second = world.deliver_all(due("Nowhere"), due("Nowhere"))

    assert steps == ["resolve"]
    faulty = [(type(error), str(error)) for _, error in _faulty([*first, *second])]
    assert faulty == [(QueueNotFoundError, "gone")] * 3


class _Body:
    """A large value in a frame when an error is raised."""


def test_error_that_is_remembered_keeps_no_message_in_memory() -> None:
    world = World(LateQueue())
    bodies: list[weakref.ref[_Body]] = []

    def find_nothing(_: str) -> None:
        body = _Body()
        bodies.append(weakref.ref(body))
        raise QueueNotFoundError("gone")

    world.queue.on_step = find_nothing
    for _ in range(2):
        world.deliver_all(due("Nowhere"))
    gc.collect()

    assert [body() for body in bodies] == [None]


def test_reasons_of_thousands_of_destinations_are_not_told_one_by_one() -> None:
    names = [f"Queue{number:04}" for number in range(2_000)]
    troubles = {("deliver", name): DestinationError(f"{name}: no right") for name in names}
    world = World(LateQueue(trouble=troubles))

    world.deliver_all(*map(due, names))

    reason = str(world.destinations.blocked_reason)
    assert reason.startswith("Queue0000: no right; Queue0001: no right; ")
    assert reason.endswith("Queue0019: no right; and 1,980 more")
