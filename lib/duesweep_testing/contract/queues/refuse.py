"""Tests of messages that are refused, and of locked queues."""

from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from duesweep.core.errors import DestinationError, MessageError, TransactionLostError
from duesweep.core.message import Message
from duesweep_testing.builders import delayed_row, message
from duesweep_testing.contract.queues import steps
from duesweep_testing.contract.subjects import REFUSED_BODY, QueueUnderTest


class RefuseContract:
    """A message arrives, even if others are refused."""

    def test_refused_messages_cost_only_themselves(self, subject: QueueUnderTest) -> None:
        subject.refuse("Billing")
        arrived = 0
        with steps.sessions(subject) as (store, queue):
            for wanted in _patterns():
                sent = [_message_to_send(number, is_wanted=w) for number, w in enumerate(wanted)]

                with store.transaction():
                    refused = steps.deliver_in(queue, "Billing", *sent)
                    queue.commit()

                taken = [one for one, w in zip(sent, wanted, strict=True) if w]
                assert subject.arrived("Billing")[arrived:] == steps.expected(*taken)
                assert set(refused) == {one.key for one in sent if one not in taken}
                assert all(isinstance(error, MessageError) for error in refused.values())
                arrived += len(taken)

    def test_refusal_says_why(self, subject: QueueUnderTest) -> None:
        subject.refuse("Billing")
        one = message(delayed_row(body=REFUSED_BODY))

        (error,) = steps.deliver(subject, "Billing", one).values()

        assert str(error)

    def test_locked_queue_takes_nothing_and_the_others_go_on(self, subject: QueueUnderTest) -> None:
        subject.create("Shipping")
        sent = steps.messages(3)

        with steps.sessions(subject) as (store, queue):
            try:
                with store.transaction():
                    queue.deliver(queue.resolve("Shipping"), sent[:1])
                    with (
                        subject.locked("Billing"),
                        pytest.raises(DestinationError, match="Billing"),
                    ):
                        queue.deliver(queue.resolve("Billing"), sent[1:])
                    queue.deliver(queue.resolve("Shipping"), sent[2:])
                    queue.commit()
            except TransactionLostError as error:
                # Allowed too: the batch is rolled back, and repeated without this destination.
                if not error.destination_is_at_fault:
                    raise
                queue.rollback()
                with store.transaction():
                    queue.deliver(queue.resolve("Shipping"), [sent[0], sent[2]])
                    queue.commit()

        assert subject.arrived("Billing") == []
        assert subject.arrived("Shipping") == steps.expected(sent[0], sent[2])

    def test_queue_that_was_locked_takes_messages_again(self, subject: QueueUnderTest) -> None:
        (one,) = steps.messages(1)
        blocked = pytest.raises((DestinationError, TransactionLostError))
        with steps.sessions(subject) as (store, queue):
            with subject.locked("Billing"), blocked as failure, store.transaction():
                queue.deliver(queue.resolve("Billing"), [one])
            if isinstance(failure.value, TransactionLostError):
                queue.rollback()

            with store.transaction():
                queue.deliver(queue.resolve("Billing"), [one])
                queue.commit()

        assert subject.arrived("Billing") == steps.expected(one)


def _patterns() -> Iterator[Sequence[bool]]:
    """Which messages of a group are accepted: all short patterns, and some long ones."""
    for length in range(1, 6):
        yield from product([True, False], repeat=length)
    yield from ([False] * 6 + [True], [True] + [False] * 6, [True, False] * 6)
    yield [number not in {0, 500, 501, 999} for number in range(1_000)]


def _message_to_send(number: int, *, is_wanted: bool) -> Message:
    return message(delayed_row(body=str(number).encode() if is_wanted else REFUSED_BODY))
