"""A single message for an endpoint on RabbitMQ: its id, its delay, and refusals."""

import uuid
from datetime import timedelta

import pytest

from duesweep.core.errors import ConfigError
from duesweep.core.message import MESSAGE_ID, TIME_TO_BE_RECEIVED
from duesweep.core.world import World
from duesweep_transport.sender import prepare
from duesweep_transport.values import OutgoingMessage


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [
        (None, 0),
        (timedelta(), 0),
        (timedelta(microseconds=1), 1),
        (timedelta(seconds=1), 1),
        (timedelta(seconds=1, microseconds=1), 2),
        (timedelta(seconds=268_435_455), 268_435_455),
    ],
)
def test_delay_is_rounded_up_to_seconds(delay: timedelta | None, seconds: int) -> None:
    prepared = prepare("Billing", OutgoingMessage({}, b"", delay=delay), World())

    assert prepared.due_us == prepared.instant_us == seconds * 1_000_000


def test_delay_that_the_ladder_cannot_hold_is_refused() -> None:
    message = OutgoingMessage({}, b"", delay=timedelta(seconds=268_435_455, microseconds=1))

    with pytest.raises(ConfigError, match=r"at most 268,435,455 s, which is 8\.5 years"):
        prepare("Billing", message, World())


@pytest.mark.parametrize("headers", [{}, {MESSAGE_ID: None}, {MESSAGE_ID: ""}])
def test_message_without_an_id_gets_one_in_its_headers(headers: dict[str, str | None]) -> None:
    message = prepare("Billing", OutgoingMessage(headers, b""), World())

    assert isinstance(message.headers, dict)
    assert message.key == message.message_id == message.headers[MESSAGE_ID]
    assert uuid.UUID(message.key).version == 4


def test_id_of_the_sender_is_kept() -> None:
    message = prepare("Billing", OutgoingMessage({MESSAGE_ID: "order/42"}, b""), World())

    assert message.key == message.message_id == "order/42"


@pytest.mark.parametrize("delay", [timedelta(), timedelta(seconds=1)])
def test_delay_and_the_header_of_a_time_to_be_received_are_refused_together(
    delay: timedelta,
) -> None:
    headers = {TIME_TO_BE_RECEIVED: "00:00:30"}

    with pytest.raises(ConfigError, match="cannot have a delay"):
        prepare("Billing", OutgoingMessage(headers, b"", delay=delay), World())
    assert prepare("Billing", OutgoingMessage(headers, b""), World()).due_us == 0
