"""What a session on RabbitMQ knows without a broker."""

import pytest

from duesweep.core.errors import DestinationError, UnreadableAddressError
from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.link import Link
from duesweep.queues.rabbitmq.session import RabbitMqQueueSession
from duesweep.queues.rabbitmq.topology import Style
from duesweep.queues.rabbitmq.wire import Punctuality


@pytest.fixture
def session() -> RabbitMqQueueSession:
    brokers = Brokers(("http://no-broker",), "queues.default")
    return RabbitMqQueueSession(
        Link(brokers, 10), Style.CONVENTIONAL, "Sales.Orders", Punctuality(is_wanted=False)
    )


@pytest.mark.parametrize(
    ("name", "is_held"),
    [("x" * 199, True), ("x" * 200, False), ("ü" * 99, True), ("ü" * 100, False)],
)
def test_ladder_holds_back_for_endpoints_whose_names_fit_its_keys(
    session: RabbitMqQueueSession, name: str, *, is_held: bool
) -> None:
    longest = session.longest_delay(name)

    assert longest == (topology.LONGEST_DELAY_SECONDS if is_held else 0)
    assert (len(topology.routing_key(longest, name).encode()) <= 255) is is_held


@pytest.mark.parametrize("address", ["", "x" * 256, "ü" * 128, "\ud800"])
def test_address_that_is_no_name_needs_no_broker_to_be_refused(
    session: RabbitMqQueueSession, address: str
) -> None:
    with pytest.raises(UnreadableAddressError):
        session.resolve(address)


def test_setting_that_cannot_be_used_is_said_of_every_destination(
    session: RabbitMqQueueSession,
) -> None:
    for name in ("Billing", None):
        with pytest.raises(DestinationError, match=r"queues\.default\.url"):
            session.resolve(name)
