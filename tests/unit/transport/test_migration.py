"""The fate of a message on the first delay ladder."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pika
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duesweep.queues.rabbitmq import topology
from duesweep_transport.exact import Delivery, Encoded
from duesweep_transport.migration import PlannedDelay, Poison, decide

_SENT = datetime(2026, 11, 21, 8, 0, 0, 123456, tzinfo=UTC)
_TEXT = "2026-11-21 08:00:00:123456 Z"
_HEADERS: dict[str, Any] = {"NServiceBus.TimeSent": _TEXT, topology.DELAY_HEADER: 10}


def _delivery(
    headers: dict[str, Any] | None = None,
    key: str = topology.routing_key(10, "Billing"),
    **more: Any,
) -> Delivery:
    block = b"".join(pika.BasicProperties(headers=headers, **more).encode())
    return Delivery(1, key, Encoded.parse(block), b"{}", is_redelivered=False)


@given(
    delay=st.integers(0, topology.LONGEST_DELAY_SECONDS),
    passed_us=st.integers(-10_000_000, 2**28 * 1_000_000),
    destination=st.text(st.characters(codec="utf-8"), min_size=1, max_size=60),
)
@example(delay=10, passed_us=1, destination="a.1.0.b")
@example(delay=10, passed_us=0, destination="Billing")
@example(delay=0, passed_us=5, destination="0.1")
def test_new_delay_is_what_is_left_rounded_up(delay: int, passed_us: int, destination: str) -> None:
    headers = {**_HEADERS, topology.DELAY_HEADER: delay}
    now = _SENT + timedelta(microseconds=passed_us)

    plan = decide(_delivery(headers, topology.routing_key(delay, destination)), now)

    left_us = delay * 1_000_000 - passed_us
    if left_us > topology.LONGEST_DELAY_SECONDS * 1_000_000:
        assert isinstance(plan, Poison)
        return
    assert isinstance(plan, PlannedDelay)
    assert plan.destination == destination
    assert plan.seconds * 1_000_000 >= left_us
    assert plan.seconds == 0 or (plan.seconds - 1) * 1_000_000 < left_us
    copy = plan.copy(_delivery(headers))
    assert topology.destination_of(copy.routing_key) == destination
    assert int(copy.routing_key[:56].replace(".", ""), 2) == plan.seconds
    level = int(copy.exchange.removeprefix("nsb.v2.delay-level-"))
    assert level == (plan.seconds.bit_length() - 1 if plan.seconds else 0)


@pytest.mark.parametrize("sent", [_TEXT, _TEXT.encode()], ids=["text", "byte array"])
def test_time_sent_may_be_a_byte_array(sent: str | bytes) -> None:
    plan = decide(_delivery({**_HEADERS, "NServiceBus.TimeSent": sent}), _SENT)

    assert plan == PlannedDelay("Billing", 10)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"NServiceBus.TimeSent": None}, "TimeSent is missing"),
        ({"NServiceBus.TimeSent": ""}, "TimeSent is missing"),
        ({"NServiceBus.TimeSent": "2026-11-21 08:00:00:1234 Z"}, "TimeSent"),
        ({"NServiceBus.TimeSent": "2026-11-21 08:00:00:12345 +0"}, "TimeSent"),
        ({"NServiceBus.TimeSent": "2026-02-30 08:00:00:123456 Z"}, "TimeSent"),
        ({"NServiceBus.TimeSent": "2026-11-21T08:00:00:123456 Z"}, "TimeSent"),
        ({"NServiceBus.TimeSent": b"\xff" * 28}, "TimeSent"),
        ({"NServiceBus.TimeSent": 5}, "TimeSent"),
        ({topology.DELAY_HEADER: None}, "DelayInSeconds is missing"),
        ({topology.DELAY_HEADER: "10"}, "DelayInSeconds"),
        ({topology.DELAY_HEADER: True}, "DelayInSeconds"),
        ({topology.DELAY_HEADER: 2**60}, "after the year 9999"),
        ({topology.DELAY_HEADER: 2**28}, "longer than a ladder holds"),
    ],
)
def test_unreadable_headers_are_poison_as_they_are(changed: dict[str, Any], says: str) -> None:
    delivery = _delivery({**_HEADERS, **changed, "x-death": [{"count": 1}]})

    plan = decide(delivery, _SENT)

    assert isinstance(plan, Poison)
    assert plan.destination == "Billing"
    assert says in plan.reason
    copy = plan.copy(delivery)
    assert (copy.exchange, copy.routing_key) == ("", "delays-migrate-poison-messages")
    assert (copy.encoded, copy.body) == (delivery.encoded, b"{}")


@pytest.mark.parametrize("headers", [None, {}, {"NServiceBus.TimeSent": _TEXT}])
def test_missing_headers_are_poison(headers: dict[str, Any] | None) -> None:
    assert isinstance(decide(_delivery(headers), _SENT), Poison)


@pytest.mark.parametrize("key", ["", "Billing", "0." * 28, "2." + "0." * 27 + "Billing", "0.1.B"])
def test_other_routing_keys_are_poison(key: str) -> None:
    plan = decide(_delivery(_HEADERS, key), _SENT)

    assert isinstance(plan, Poison)
    assert plan.destination is None
