"""Error messages of a batch, and what a delivery remembers of destinations."""

import gc
import weakref

import pytest

from duesweep.core.policy import CLAIM_SECONDS
from duesweep.errors import DestinationError, QueueNotFoundError, RefusedMessageError
from support.delivery_world import LateQueue, World, due, early

REFUSED = RefusedMessageError("too long")


def test_letters_that_were_refused_late_or_not_confirmed_have_not_arrived() -> None:
    sent = [due() for _ in range(3)]
    world = World(LateQueue(late={sent[0].key: REFUSED}, silent={sent[1].key}))

    assert world.delivery.deliver_error_messages("error", sent) == ("error", {sent[2].key})
    assert world.queue.waited == [CLAIM_SECONDS]


@pytest.mark.parametrize(("confirmed", "is_closed"), [(0, False), (1, True)])
def test_error_queue_that_failed_is_used_again_once_it_confirms(
    confirmed: int, *, is_closed: bool
) -> None:
    sent = [due() for _ in range(2)]
    world = World(LateQueue(silent={one.key for one in sent[confirmed:]}))
    world.breakers.fail("error", "it was locked", took_seconds=0)
    world.clock.advance(1)

    world.delivery.deliver_error_messages("error", sent)

    assert world.breakers.takes("error") is is_closed


def test_letters_go_at_once_however_early_their_messages_are() -> None:
    one = early()
    world = World(LateQueue())

    assert world.delivery.deliver_error_messages("error", [one]) == ("error", {one.key})
    assert world.queue.delivered == [("error", [one.key])]


def test_queue_that_is_missing_is_looked_for_once_a_slice() -> None:
    world = World(LateQueue(trouble={("resolve", "Nowhere"): QueueNotFoundError("gone")}))
    steps: list[str] = []
    world.queue.on_step = steps.append

    first = world.deliver_all(due("Nowhere"))
    second = world.deliver_all(due("Nowhere"), due("Nowhere"))

    assert steps == ["resolve"]
    assert [(type(e), str(e)) for _, e in [*first.faulty, *second.faulty]] == [
        (QueueNotFoundError, "gone")
    ] * 3


class _Body:
    """What a frame holds when an error is raised."""


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
    world = World(
        LateQueue(
            trouble={("deliver", name): DestinationError(f"{name}: no right") for name in names}
        )
    )

    world.deliver_all(*map(due, names))

    reason = world.delivery.blocked_reason
    assert reason is not None
    assert reason.startswith("Queue0000: no right; Queue0001: no right; ")
    assert reason.endswith("Queue0019: no right; and 1,980 more")
