"""New messages, sent at once and through the delay ladder of a real broker."""

import re
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from duesweep.core.errors import (
    ConfigError,
    MessageError,
    QueueError,
    QueueNotFoundError,
    RefusedMessageError,
    UnreadableAddressError,
)
from duesweep.core.message import MESSAGE_ID, OutgoingMessage
from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.session import RabbitMqQueueSession, open_sender
from duesweep.queues.rabbitmq.topology import RabbitMqSetup, Style
from support.rabbitmq.broker import Broker
from support.recordings import BrokerMessage, broker_messages, cases

_PROPERTIES = ("type", "message_id", "reply_to", "correlation_id", "delivery_mode", "content_type")
_CONVERSATION = "NServiceBus.ConversationId"
_LATER = timedelta(hours=1)
BOTH = pytest.mark.parametrize("style", Style)


def _brokers(broker: Broker) -> Brokers:
    return Brokers((broker.url,), "queues.default")


def _with_ladder(broker: Broker, style: Style, *endpoints: str) -> None:
    RabbitMqSetup(_brokers(broker), style, endpoints, "url").install(rebind=False)


def _send(broker: Broker, style: Style, name: str, message: OutgoingMessage) -> str:
    with open_sender(_brokers(broker), style) as sender:
        return sender.send(name, message)


def _later(delay: timedelta = _LATER, **headers: str) -> OutgoingMessage:
    return OutgoingMessage(headers, b"{}", delay=delay)


def _in_ladder(broker: Broker) -> int:
    return sum(broker.count(topology.level_name(level)) for level in range(topology.LEVELS))


def _comparable(queue: str, one: Any) -> BrokerMessage:
    """A message that was taken, less what broker and client add."""
    method, properties, body = one
    headers = {n: v for n, v in properties.headers.items() if not n.startswith("x-")}
    found = {name: getattr(properties, name) for name in _PROPERTIES}
    present: Mapping[str, object] = {n: value for n, value in found.items() if value is not None}
    return BrokerMessage(queue, method.exchange, method.routing_key, {**present}, headers, body)


@BOTH
def test_delayed_messages_equal_the_recorded_ones_and_are_not_early(
    broker: Broker, style: Style
) -> None:
    _with_ladder(broker, style, "Billing")
    recorded = {
        one.headers[_CONVERSATION]: one
        for one in broker_messages()
        if topology.DELAY_HEADER in one.headers
    }
    sent = {case.name: case for case in cases() if case.conversation_id in recorded}
    assert sent.keys() == {"fraction-delay", "sub-second", "year", "level27", "max"}

    began = time.monotonic()
    with open_sender(_brokers(broker), style) as sender:
        for case in sent.values():
            delay = timedelta(milliseconds=case.delay_ms)
            message = OutgoingMessage(case.headers, case.body, delay=delay)
            assert sender.send(case.to, message) == case.headers[MESSAGE_ID]
    first = broker.take_all("Billing", 1)
    after_the_first = time.monotonic() - began
    arrived = first + broker.take_all("Billing", 2 - len(first))
    after_both = time.monotonic() - began

    assert after_the_first >= 0.4
    assert after_both >= 1.5
    found = [_comparable("Billing", one) for one in arrived]
    for level, count in ((24, 1), (27, 2)):
        queue = topology.level_name(level)
        found += [_comparable(queue, one) for one in broker.take_all(queue, count)]
    assert len(found) == len(recorded)
    assert {one.headers[_CONVERSATION]: one for one in found} == recorded


@BOTH
def test_message_without_a_delay_arrives_at_once_with_an_id_of_its_own(
    broker: Broker, style: Style
) -> None:
    broker.create("Billing")
    message = OutgoingMessage({}, None, time_to_be_received=timedelta(hours=1))

    ids = {_send(broker, style, "Billing", message) for _ in range(2)}

    taken = broker.take_all("Billing", 2)
    assert {properties.message_id for _, properties, _ in taken} == ids
    assert len(ids) == 2
    for _, properties, body in taken:
        assert properties.headers[MESSAGE_ID] == properties.message_id
        assert properties.headers["NServiceBus.TimeToBeReceived"] == "01:00:00"
        assert (properties.expiration, body) == ("3600000", b"")


@BOTH
def test_delayed_message_for_a_queue_that_is_missing_is_refused_and_not_published(
    broker: Broker, style: Style
) -> None:
    _with_ladder(broker, style)

    with pytest.raises(QueueNotFoundError, match="There is no queue Nowhere on RabbitMQ"):
        _send(broker, style, "Nowhere", _later())

    assert _in_ladder(broker) == 0


def test_exchange_without_a_queue_of_its_name_gets_nothing_delayed(broker: Broker) -> None:
    _with_ladder(broker, Style.CONVENTIONAL)
    broker.channel.exchange_declare("Billing", "fanout", durable=True)

    with pytest.raises(QueueNotFoundError, match="There is no queue Billing"):
        _send(broker, Style.CONVENTIONAL, "Billing", _later())
    with pytest.raises(QueueNotFoundError, match="No queue on RabbitMQ takes messages for Billing"):
        _send(broker, Style.CONVENTIONAL, "Billing", OutgoingMessage({}, b""))

    assert _in_ladder(broker) == 0


@BOTH
def test_endpoint_that_is_not_bound_to_the_ladder_is_bound_before_the_message_enters(
    broker: Broker, style: Style
) -> None:
    _with_ladder(broker, style)
    broker.create("Billing")

    _send(broker, style, "Billing", _later(timedelta(milliseconds=1)))

    ((method, _, _),) = broker.take_all("Billing", 1)
    assert method.routing_key.endswith(".1.Billing")


def test_broker_without_a_ladder_is_a_setting_and_gets_nothing(billing: Broker) -> None:
    with pytest.raises(ConfigError, match=r"no delay ladder; run `duesweep rabbitmq delays create"):
        _send(billing, Style.CONVENTIONAL, "Billing", _later())

    assert billing.count("Billing") == 0


def test_level_that_lost_its_bindings_is_said_and_the_message_was_not_sent(billing: Broker) -> None:
    _with_ladder(billing, Style.CONVENTIONAL)
    # An hour begins on level 11.
    name, bit = topology.level_name(11), "*." * 16
    billing.channel.queue_unbind(name, name, f"{bit}1.#")

    with pytest.raises(ConfigError, match=r"was not sent: nsb\.v2\.delay-level-11 .* verify"):
        _send(billing, Style.CONVENTIONAL, "Billing", _later())

    assert _in_ladder(billing) == 0


def test_full_queue_refuses_the_message(broker: Broker) -> None:
    broker.create("Billing", x_queue_type="classic", x_max_length=1, x_overflow="reject-publish")
    message = OutgoingMessage({}, b"")
    _send(broker, Style.CONVENTIONAL, "Billing", message)

    with pytest.raises(RefusedMessageError, match="may be full"):
        _send(broker, Style.CONVENTIONAL, "Billing", message)


def test_name_that_leaves_no_room_for_the_delay_is_refused(broker: Broker) -> None:
    _with_ladder(broker, Style.CONVENTIONAL)
    name = "x" * 200
    broker.create(name, x_queue_type="classic")

    with pytest.raises(ConfigError, match="too long for the delay ladder"):
        _send(broker, Style.CONVENTIONAL, name, _later())
    with pytest.raises(UnreadableAddressError):
        _send(broker, Style.CONVENTIONAL, "x" * 256, _later())

    assert _in_ladder(broker) == 0


def test_broker_that_is_down_is_told_from_a_wrong_setting(broker: Broker) -> None:
    wrong = Brokers((broker.url.replace("guest:guest", "guest:wrong"),), "queues.default")
    down = Brokers(("amqp://guest:guest@127.0.0.1:1/",), "queues.default")

    with pytest.raises(ConfigError, match="check user"), open_sender(wrong, Style.DIRECT):
        pass
    with pytest.raises(QueueError) as caught, open_sender(down, Style.DIRECT):
        pass
    assert caught.value.transient


def test_message_that_is_not_confirmed_may_have_arrived(
    billing: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirm: Callable[..., Any] = RabbitMqQueueSession.confirm
    monkeypatch.setattr(RabbitMqQueueSession, "confirm", lambda session, _: confirm(session, 0.0))

    with pytest.raises(QueueError, match="it may have arrived or not; look whether") as caught:
        _send(billing, Style.CONVENTIONAL, "Billing", OutgoingMessage({}, b""))

    assert not isinstance(caught.value, ConfigError | MessageError)
    assert caught.value.transient


def test_example_in_the_documentation_defers_its_message(broker: Broker) -> None:
    _with_ladder(broker, Style.CONVENTIONAL, "Billing")
    text = (Path(__file__).parents[3] / "docs" / "rabbitmq.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)

    exec(example, {"url": broker.url})

    assert _in_ladder(broker) == 1
