"""What is delivered."""

import pytest

from duesweep.testing.builders import delayed_row, message
from duesweep.testing.contract.queues import steps
from duesweep.testing.contract.subjects import BrokerUnderTest


class DeliverContract:
    """Messages arrive in order and to the letter."""

    @pytest.mark.parametrize("count", [1, 2, 1_000])
    def test_messages_are_delivered_in_order_and_as_they_are(
        self, subject: BrokerUnderTest, count: int
    ) -> None:
        letters = steps.messages(count)

        assert steps.deliver(subject, "Billing", *letters) == {}

        assert subject.letters("Billing") == steps.letters(*letters)

    @pytest.mark.parametrize(
        "body",
        [None, b"", b"\0", bytes(range(256)) * 3, b"x" * 256_001],
        ids=["none", "empty", "one NUL", "every byte", "longer than a chunk"],
    )
    def test_any_body_is_delivered_as_it_is(
        self, subject: BrokerUnderTest, body: bytes | None
    ) -> None:
        if body is None and not subject.has_null_bodies:
            pytest.skip("a body that is none is an empty one there")
        letters = [message(delayed_row(body=body)) for _ in range(3)]

        assert steps.deliver(subject, "Billing", *letters) == {}

        assert subject.letters("Billing") == steps.letters(*letters)

    def test_bodies_of_every_kind_are_delivered_in_one_group(
        self, subject: BrokerUnderTest
    ) -> None:
        none = None if subject.has_null_bodies else b""
        bodies = [b"short", none, b"", b"x" * 256_001, none, bytes(range(256))]
        letters = [message(delayed_row(body=body)) for body in bodies]

        assert steps.deliver(subject, "Billing", *letters) == {}

        assert subject.letters("Billing") == steps.letters(*letters)

    def test_any_headers_are_delivered_to_the_letter(self, subject: BrokerUnderTest) -> None:
        odd = {"Grüße": '\N{GRINNING FACE} " \\ \t /', "Nullable": None, "": "", "\x01": "\0"}
        letter = message(delayed_row(more=odd))

        steps.deliver(subject, "Billing", letter)

        assert subject.letters("Billing") == steps.letters(letter)

    def test_several_groups_are_delivered_in_one_batch(self, subject: BrokerUnderTest) -> None:
        subject.create("Shipping")
        letters = steps.messages(4)

        with steps.sessions(subject) as (store, queue), store.transaction():
            queue.deliver(queue.resolve("Billing"), letters[:2])
            queue.deliver(queue.resolve("Shipping"), letters[2:3])
            steps.carry(queue, "Billing", *letters[3:])
            queue.commit()

        assert subject.letters("Billing") == steps.letters(*letters[:2], letters[3])
        assert subject.letters("Shipping") == steps.letters(letters[2])
