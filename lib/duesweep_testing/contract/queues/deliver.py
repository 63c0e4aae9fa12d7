"""Tests of deliveries."""

import pytest

from duesweep_testing.builders import delayed_row, message
from duesweep_testing.contract.queues import steps
from duesweep_testing.contract.subjects import BrokerUnderTest


class DeliverContract:
    """Messages arrive in order and byte for byte."""

    @pytest.mark.parametrize("count", [1, 2, 1_000])
    def test_messages_are_delivered_in_order_and_as_they_are(
        self, subject: BrokerUnderTest, count: int
    ) -> None:
        sent = steps.messages(count)

        assert steps.deliver(subject, "Billing", *sent) == {}

        assert subject.arrived("Billing") == steps.expected(*sent)

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
        sent = [message(delayed_row(body=body)) for _ in range(3)]

        assert steps.deliver(subject, "Billing", *sent) == {}

        assert subject.arrived("Billing") == steps.expected(*sent)

    def test_bodies_of_every_kind_are_delivered_in_one_group(
        self, subject: BrokerUnderTest
    ) -> None:
        none = None if subject.has_null_bodies else b""
        bodies = [b"short", none, b"", b"x" * 256_001, none, bytes(range(256))]
        sent = [message(delayed_row(body=body)) for body in bodies]

        assert steps.deliver(subject, "Billing", *sent) == {}

        assert subject.arrived("Billing") == steps.expected(*sent)

    def test_any_headers_are_delivered_byte_for_byte(self, subject: BrokerUnderTest) -> None:
        odd = {"Grüße": '\N{GRINNING FACE} " \\ \t /', "Nullable": None, "": "", "\x01": "\0"}
        one = message(delayed_row(more=odd))

        steps.deliver(subject, "Billing", one)

        assert subject.arrived("Billing") == steps.expected(one)

    def test_several_groups_are_delivered_in_one_batch(self, subject: BrokerUnderTest) -> None:
        subject.create("Shipping")
        sent = steps.messages(4)

        with steps.sessions(subject) as (store, queue), store.transaction():
            queue.deliver(queue.resolve("Billing"), sent[:2])
            queue.deliver(queue.resolve("Shipping"), sent[2:3])
            steps.deliver_in(queue, "Billing", *sent[3:])
            queue.commit()

        assert subject.arrived("Billing") == steps.expected(*sent[:2], sent[3])
        assert subject.arrived("Shipping") == steps.expected(sent[2])
