"""The fate of a message on the first delay ladder."""

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pika
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duesweep.drivers.rabbitmq.exact import Delivery, Encoded
from duesweep.queues.rabbitmq import topology
from duesweep_transport.migration import PlannedDelay, Poison, decide

_SENT = datetime(2026, 11, 21, 8, 0, 0, 123456, tzinfo=UTC)
_TEXT = "2026-11-21 08:00:00:123456 Z"
_HEADERS: dict[str, Any] = {"NServiceBus.TimeSent": _TEXT, topology.DELAY_HEADER: 10}
_RECORDED = Path(__file__).parents[2] / "fixtures" / "rabbitmq" / "migrated.jsonl"


def _delivery(
    headers: dict[str, Any] | None = None,
    key: str = topology.routing_key(10, "Billing"),
    **more: Any,
) -> Delivery:
    block = b"".join(pika.BasicProperties(headers=headers, **more).encode())
    return Delivery(1, key, Encoded.parse(block), b"{}", is_redelivered=False)


# NServiceBus's own tool rounds to the nearest second; it moved these 1.5 to 2.5 s
# after they were sent.
@pytest.mark.parametrize(
    ("after_seconds", "more"), [(2.0, 0), (2.25, 0), (2.5, 0), (1.5, 1), (1.999999, 1)]
)
def test_recorded_messages_go_where_they_were_recorded_or_a_second_later(
    after_seconds: float, more: int
) -> None:
    recorded = [json.loads(line) for line in _RECORDED.read_text("utf-8").splitlines()]
    for one in recorded:
        headers = one["properties"]["headers"]
        delay, sent = headers[topology.DELAY_HEADER], headers["NServiceBus.TimeSent"]
        now = datetime.strptime(sent, "%Y-%m-%d %H:%M:%S:%f %z") + timedelta(seconds=after_seconds)
        waiting = {**headers, "x-death": [{"count": 1}], "x-first-death-queue": "nsb"}
        properties = {n: v for n, v in one["properties"].items() if n != "headers"}
        delivery = _delivery(waiting, topology.routing_key(delay, "Billing"), **properties)

        plan = decide(delivery, now)

        assert isinstance(plan, PlannedDelay)
        copy = plan.copy(delivery)
        seconds = int(one["routing_key"].removesuffix(".Billing").replace(".", ""), 2) + more
        assert copy.routing_key == topology.routing_key(seconds, "Billing")
        assert copy.exchange == one["exchange"]
        if not more:
            assert copy.routing_key == one["routing_key"]
        sent_on = pika.BasicProperties().decode(copy.encoded.block())
        assert sent_on.headers == headers
        assert (sent_on.message_id, sent_on.delivery_mode) == (properties["message_id"], 2)
    assert len(recorded) == 20
    assert base64.b64decode(recorded[0]["payload"])


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
