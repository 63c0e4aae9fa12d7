"""Tests of addresses, and of the check before anything is claimed."""

import pytest

from duesweep.core.errors import ConfigError, QueueNotFoundError
from duesweep_testing.builders import ENDPOINT
from duesweep_testing.contract.queues import steps
from duesweep_testing.contract.subjects import BrokerUnderTest


class ResolveContract:
    """Destinations that exist, and destinations that do not."""

    def test_destination_without_a_queue_is_the_messages_fault(
        self, subject: BrokerUnderTest
    ) -> None:
        with (
            steps.sessions(subject) as (_, queue),
            pytest.raises(QueueNotFoundError, match="Nowhere"),
        ):
            queue.resolve("Nowhere")

    def test_no_destination_is_the_endpoints_own_queue(self, subject: BrokerUnderTest) -> None:
        (one,) = steps.messages(1)

        assert steps.deliver(subject, None, one) == {}

        assert subject.arrived(ENDPOINT) == steps.expected(one)
        assert subject.arrived("Billing") == []

    def test_queue_made_while_the_session_is_open_is_found(self, subject: BrokerUnderTest) -> None:
        with steps.sessions(subject) as (_, queue):
            with pytest.raises(QueueNotFoundError):
                queue.resolve("Shipping")
            subject.create("Shipping")

            assert "Shipping" in str(queue.resolve("Shipping"))

    def test_same_destination_is_one_value(self, subject: BrokerUnderTest) -> None:
        with steps.sessions(subject) as (_, queue):
            billing, again, own = map(queue.resolve, ("Billing", "Billing", None))

        assert billing == again
        assert len({billing, again, own}) == 2

    def test_check_refuses_an_error_queue_that_is_none_as_a_wrong_setting(
        self, subject: BrokerUnderTest
    ) -> None:
        subject.queue.check(None)
        subject.queue.check("Billing")
        with pytest.raises(ConfigError, match="Nowhere"):
            subject.queue.check("Nowhere")

    def test_check_refuses_a_service_of_their_own_without_the_endpoints_queue(
        self, subject: BrokerUnderTest
    ) -> None:
        subject.drop(ENDPOINT)

        if subject.has_own_transaction:
            with pytest.raises(ConfigError, match=ENDPOINT):
                subject.queue.check(None)
        else:
            subject.queue.check(None)
