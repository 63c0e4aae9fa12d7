"""The delay ladder's routing keys and levels, and a session's knowledge of it without a broker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.errors import DestinationError
from duesweep.core.policy import delay_level
from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.link import Link
from duesweep.queues.rabbitmq.session import RabbitMqQueueSession
from duesweep.queues.rabbitmq.topology import Style, destination_of, routing_key
from duesweep.queues.rabbitmq.wire import Punctuality

delays = st.integers(0, topology.LONGEST_DELAY_SECONDS)


def _bits(key: str) -> list[int]:
    return [int(bit) for bit in key.split(".")[: topology.LEVELS]]


@given(delays, st.text(min_size=1))
def test_bits_of_a_key_sum_to_the_delay_and_the_first_is_its_level(
    seconds: int, destination: str
) -> None:
    bits = _bits(routing_key(seconds, destination))

    waits = [2**level for level, bit in enumerate(reversed(bits)) if bit]
    assert len(bits) == topology.LEVELS
    assert sum(waits) == seconds
    assert 2 ** delay_level(seconds) == max(waits, default=1)


@given(delays, st.text(min_size=1))
def test_destination_is_found_again_in_a_key(seconds: int, destination: str) -> None:
    assert destination_of(routing_key(seconds, destination)) == destination


@pytest.mark.parametrize(
    "key",
    ["", "Billing", "0." * 28, "0." * 27 + "Billing", "2" + ".0" * 27 + ".Billing", "0" * 57 + "B"],
)
def test_other_keys_hold_no_destination(key: str) -> None:
    assert destination_of(key) is None


@pytest.fixture
def session() -> RabbitMqQueueSession:
    brokers = Brokers(("amqp://without-password@no-broker",), "queues.default")
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


def test_setting_that_cannot_be_used_is_said_of_every_destination(
    session: RabbitMqQueueSession,
) -> None:
    for name in ("Billing", None):
        with pytest.raises(DestinationError, match=r"queues\.default\.url"):
            session.resolve(name)
