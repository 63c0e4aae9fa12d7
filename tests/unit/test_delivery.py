"""Delivery to a queue that answers late and can defer messages."""

from datetime import timedelta

from duesweep.core.outcome import Delivered
from duesweep.core.policy import CLAIM_SECONDS
from duesweep.errors import (
    DestinationError,
    QueueNotFoundError,
    RefusedMessageError,
    UnreadableHeadersError,
)
from duesweep.sweep.delivery import BatchResult
from duesweep_testing.builders import DUE, DelayedRow, message
from support.delivery_world import LateQueue, World, due, early

REFUSED = RefusedMessageError("too long")
SHUT = DestinationError("the ladder is gone")


def _sent(result: BatchResult) -> set[str]:
    return {one.message.key for one in result.delivered}


def test_late_refusals_are_charged_and_the_others_have_arrived() -> None:
    sent = [due(), due(), due("Shipping")]
    world = World(LateQueue(late={sent[1].key: REFUSED}))

    result = world.deliver_all(*sent)

    assert result == BatchResult(
        delivered=[Delivered(sent[0], "Billing"), Delivered(sent[2], "Shipping")],
        faulty=[(sent[1], REFUSED)],
    )
    assert world.delivery.blocked_reason is None


def test_unconfirmed_messages_are_released_and_charged_nothing() -> None:
    sent = [due(), early(), due()]
    world = World(LateQueue(silent={sent[0].key, sent[1].key}))

    result = world.deliver_all(*sent)

    assert result == BatchResult(
        delivered=[Delivered(sent[2], "Billing")], released=[sent[0], sent[1]]
    )


def test_answers_are_waited_for_once_a_batch_and_within_its_time() -> None:
    world = World(LateQueue())

    world.deliver_all(due(), due("Shipping"), early())

    assert world.queue.waited == [CLAIM_SECONDS]


def test_answers_get_a_second_however_late_a_batch_is() -> None:
    world = World(LateQueue())
    world.queue.on_step = lambda step: (
        world.clock.advance(2 * CLAIM_SECONDS) if step == "resolve" else None
    )

    result = world.deliver_all(due(), due("Shipping"))

    assert world.queue.waited == [1.0]
    assert [m.destination for m in result.unreached] == ["Shipping"]


def test_batch_that_sent_nothing_asks_for_no_answers() -> None:
    world = World(LateQueue(trouble={("resolve", "Billing"): QueueNotFoundError("gone")}))

    world.deliver_all(due())

    assert world.queue.waited == []


def test_messages_that_are_not_due_yet_are_deferred_as_far_as_the_queue_can() -> None:
    now, soon, edge, far = due(), early(seconds=30), early(seconds=61), early(seconds=61.000001)
    world = World(LateQueue(longest=60))

    result = world.deliver_all(far, edge, now, soon)

    assert world.queue.delivered == [("Billing", [now.key])]
    assert world.queue.deferred == [("Billing", [edge.key, soon.key])]
    assert result == BatchResult(
        delivered=[
            Delivered(now, "Billing"),
            Delivered(edge, "Billing", is_deferred=True),
            Delivered(soon, "Billing", is_deferred=True),
        ],
        early=[far],
    )


def test_queue_that_holds_nothing_back_is_given_nothing_early() -> None:
    soon = early()
    world = World(LateQueue(longest=0))

    assert world.deliver_all(soon) == BatchResult(early=[soon])
    assert world.queue.deferred == world.queue.delivered == []


def test_early_messages_are_charged_with_no_fault_of_any_kind() -> None:
    refused, unknown = early(), early("Nowhere")
    unreadable = message(DelayedRow(headers="{", due=DUE + timedelta(seconds=30)))
    world = World(
        LateQueue(
            late={refused.key: REFUSED},
            trouble={("resolve", "Nowhere"): QueueNotFoundError("There is no queue Nowhere")},
        )
    )

    result = world.deliver_all(refused, unknown, unreadable)

    assert result.faulty == result.delivered == result.released == []
    assert result.early == [unreadable, unknown, refused]


def test_early_message_that_comes_due_while_its_refusal_is_waited_for_is_not_charged() -> None:
    soon = early(seconds=2)
    world = World(LateQueue(late={soon.key: REFUSED}))
    world.queue.on_step = lambda step: world.clock.advance(3) if step == "confirm" else None

    assert world.deliver_all(soon) == BatchResult(early=[soon])


def test_due_messages_of_a_queue_that_is_not_there_are_charged_and_early_ones_are_not() -> None:
    error = QueueNotFoundError("There is no queue Billing")
    now, soon = due(), early()
    world = World(LateQueue(trouble={("resolve", "Billing"): error}))

    assert world.deliver_all(now, soon) == BatchResult(faulty=[(now, error)], early=[soon])


def test_due_messages_that_went_before_the_ladder_failed_are_counted_as_delivered() -> None:
    now, soon = due(), early()
    world = World(LateQueue(trouble={("defer", "Billing"): SHUT}))

    result = world.deliver_all(now, soon)

    assert result == BatchResult(delivered=[Delivered(now, "Billing")], undeferred=[soon])
    assert world.delivery.blocked_reason == "the ladder is gone"


def test_destination_without_a_ladder_still_gets_what_is_due_in_later_batches() -> None:
    world = World(LateQueue(trouble={("defer", "Billing"): SHUT}))
    world.deliver_all(early())
    world.queue.trouble.clear()
    now, soon = due(), early()

    result = world.deliver_all(now, soon)

    assert _sent(result) == {now.key}
    assert result.undeferred == [soon]
    assert world.queue.deferred == [], "tried again in the same slice"


def test_queue_that_cannot_be_bound_to_the_ladder_costs_its_messages_nothing() -> None:
    now, soon = due(), early()
    world = World(LateQueue(trouble={("defer", "Billing"): QueueNotFoundError("no such queue")}))

    result = world.deliver_all(now, soon)

    assert result == BatchResult(delivered=[Delivered(now, "Billing")], early=[soon])


def test_destination_that_takes_nothing_keeps_its_early_messages_too() -> None:
    world = World(LateQueue(trouble={("deliver", "Billing"): DestinationError("blocked")}))
    now, soon, other = due(), early(), due("Shipping")

    result = world.deliver_all(now, soon, other)

    assert result.blocked == [now, soon]
    assert _sent(result) == {other.key}
    assert world.delivery.blocked_reason == "blocked"


def test_unreadable_message_that_is_due_is_charged() -> None:
    one = message(DelayedRow(headers="{", due=DUE))
    world = World(LateQueue())

    ((charged, error),) = world.deliver_all(one).faulty

    assert charged is one
    assert isinstance(error, UnreadableHeadersError)
