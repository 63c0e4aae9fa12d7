"""What is refused and held up."""

from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from duesweep.errors import DestinationError, MessageError, TransactionLostError
from duesweep.message import Message
from duesweep.testing.builders import delayed_row, message
from duesweep.testing.contract.queues import steps
from duesweep.testing.contract.subjects import REFUSED_BODY, QueueUnderTest


class RefuseContract:
    """Messages arrive whatever becomes of others."""

    def test_refused_messages_cost_only_themselves(self, subject: QueueUnderTest) -> None:
        subject.refuse("Billing")
        arrived = 0
        with steps.sessions(subject) as (store, queue):
            for wanted in _patterns():
                letters = [_letter(number, is_wanted=w) for number, w in enumerate(wanted)]

                with store.transaction():
                    refused = steps.carry(queue, "Billing", *letters)
                    queue.commit()

                taken = [letter for letter, w in zip(letters, wanted, strict=True) if w]
                assert subject.letters("Billing")[arrived:] == steps.letters(*taken)
                assert set(refused) == {letter.key for letter in letters if letter not in taken}
                assert all(isinstance(error, MessageError) for error in refused.values())
                arrived += len(taken)

    def test_what_is_refused_says_why(self, subject: QueueUnderTest) -> None:
        subject.refuse("Billing")
        letter = message(delayed_row(body=REFUSED_BODY))

        (error,) = steps.deliver(subject, "Billing", letter).values()

        assert str(error)

    def test_locked_queue_takes_nothing_and_the_others_go_on(self, subject: QueueUnderTest) -> None:
        subject.create("Shipping")
        letters = steps.messages(3)

        with steps.sessions(subject) as (store, queue):
            try:
                with store.transaction():
                    queue.deliver(queue.resolve("Shipping"), letters[:1])
                    with (
                        subject.locked("Billing"),
                        pytest.raises(DestinationError, match="Billing"),
                    ):
                        queue.deliver(queue.resolve("Billing"), letters[1:])
                    queue.deliver(queue.resolve("Shipping"), letters[2:])
                    queue.commit()
            except TransactionLostError as error:
                # Allowed as well: the batch is undone, and done again without this destination.
                if not error.destination_is_at_fault:
                    raise
                queue.rollback()
                with store.transaction():
                    queue.deliver(queue.resolve("Shipping"), [letters[0], letters[2]])
                    queue.commit()

        assert subject.letters("Billing") == []
        assert subject.letters("Shipping") == steps.letters(letters[0], letters[2])

    def test_queue_that_was_locked_takes_messages_again(self, subject: QueueUnderTest) -> None:
        (letter,) = steps.messages(1)
        blocked = pytest.raises((DestinationError, TransactionLostError))
        with steps.sessions(subject) as (store, queue):
            with subject.locked("Billing"), blocked as failure, store.transaction():
                queue.deliver(queue.resolve("Billing"), [letter])
            if isinstance(failure.value, TransactionLostError):
                queue.rollback()

            with store.transaction():
                queue.deliver(queue.resolve("Billing"), [letter])
                queue.commit()

        assert subject.letters("Billing") == steps.letters(letter)


def _patterns() -> Iterator[Sequence[bool]]:
    """Which messages of a group are wanted: all short groups, and long ones worth a look."""
    for length in range(1, 6):
        yield from product([True, False], repeat=length)
    yield from ([False] * 6 + [True], [True] + [False] * 6, [True, False] * 6)
    yield [number not in {0, 500, 501, 999} for number in range(1_000)]


def _letter(number: int, *, is_wanted: bool) -> Message:
    return message(delayed_row(body=str(number).encode() if is_wanted else REFUSED_BODY))
