"""Messages of any kind, sent at once and through the delay ladder of a real broker."""

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
    UnreadableAddressError,
    UnreadableHeadersError,
)
from duesweep.core.headers import FORWARD_DESTINATION, read_json, write_json
from duesweep.core.message import MESSAGE_ID
from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.session import RabbitMqQueueSession
from duesweep.queues.rabbitmq.topology import RabbitMqSetup, Style
from duesweep_testing.builders import DelayedRow
from duesweep_transport.sender import open_sender
from duesweep_transport.values import OutgoingMessage
from support.bad_input import corpus
from support.rabbitmq.broker import Broker
from support.rabbitmq.commands import in_ladder
from support.rabbitmq.sessions import arrived, bodies, numbered, queue_of, queue_session, world_on
from support.recordings import BrokerMessage, broker_messages, cases

_PROPERTIES = (
    *("type", "message_id", "reply_to", "correlation_id", "delivery_mode", "content_type"),
    "expiration",
)
# Its transport's id is in no header, and in no table: only the header's remains.
_IDS = {"guid-not-id": "order/42"}
_CONVERSATION = "NServiceBus.ConversationId"
_LATER = timedelta(hours=1)
BOTH = pytest.mark.parametrize("style", Style)


def _brokers(broker: Broker) -> Brokers:
    return Brokers((broker.url,), "queues.default")


def _with_ladder(broker: Broker, style: Style, *endpoints: str) -> None:
    RabbitMqSetup(_brokers(broker), style, endpoints, "url").create()


def _send(broker: Broker, style: Style, name: str, message: OutgoingMessage) -> str:
    with open_sender(_brokers(broker), style) as sender:
        return sender.send(name, message)


def _later(delay: timedelta = _LATER, **headers: str) -> OutgoingMessage:
    return OutgoingMessage(headers, b"{}", delay=delay)


def _comparable(queue: str, one: Any) -> BrokerMessage:
    """A message that was taken, less what broker and client add."""
    method, properties, body = one
    headers = {n: v for n, v in properties.headers.items() if not n.startswith("x-")}
    found = {name: getattr(properties, name) for name in _PROPERTIES}
    present: Mapping[str, object] = {n: value for n, value in found.items() if value is not None}
    return BrokerMessage(queue, method.exchange, method.routing_key, {**present}, headers, body)


def test_due_messages_equal_the_recorded_ones_property_by_property(broker: Broker) -> None:
    recorded = {one.headers[_CONVERSATION]: one for one in broker_messages()}
    queues = ("Billing", "Ship.ping")
    sent = {
        case.conversation_id: case
        for case in cases()
        if case.conversation_id in recorded and recorded[case.conversation_id].queue in queues
    }
    for name in queues:
        broker.create(name)

    with queue_session(broker) as session:
        for case in sent.values():
            assert session.deliver(session.resolve(case.to), [case.message()]) == {}
        assert session.confirm(10).unconfirmed == frozenset()

    arrived = [
        _comparable(name, one)
        for name in queues
        for one in broker.take_all(name, sum(case.to == name for case in sent.values()))
    ]
    assert len(arrived) == len(sent) == 19
    for found in arrived:
        conversation = found.headers[_CONVERSATION]
        wanted, name = recorded[conversation], sent[conversation].name
        own_id = {"message_id": _IDS[name]} if name in _IDS else {}
        found.headers.pop("NServiceBus.TimeToBeReceived", None)
        wanted.headers.pop(topology.DELAY_HEADER, None)
        assert (found.queue, found.body) == (wanted.queue, wanted.body)
        assert found.headers == wanted.headers
        assert found.properties == wanted.properties | own_id


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


def test_level_that_lost_its_bindings_is_said_and_the_message_was_not_sent(billing: Broker) -> None:
    _with_ladder(billing, Style.CONVENTIONAL)
    # An hour begins on level 11.
    name, bit = topology.level_name(11), "*." * 16
    billing.channel.queue_unbind(name, name, f"{bit}1.#")

    with pytest.raises(ConfigError, match=r"was not sent: nsb\.v2\.delay-level-11 .* verify"):
        _send(billing, Style.CONVENTIONAL, "Billing", _later())

    assert in_ladder(billing) == 0


def test_name_that_leaves_no_room_for_the_delay_is_refused(broker: Broker) -> None:
    _with_ladder(broker, Style.CONVENTIONAL)
    name = "x" * 200
    broker.create(name, x_queue_type="classic")

    with pytest.raises(ConfigError, match="too long for the delay ladder"):
        _send(broker, Style.CONVENTIONAL, name, _later())
    with pytest.raises(UnreadableAddressError):
        _send(broker, Style.CONVENTIONAL, "x" * 256, _later())

    assert in_ladder(broker) == 0


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

    assert in_ladder(broker) == 1


# A broker's own exchanges and queues, whose names no endpoint has.
_BROKERS_OWN = ["amq.fanout", "amq.direct", "amq.topic", "amq.headers", "amq.rabbitmq.reply-to"]


@pytest.mark.parametrize("style", list(Style))
def test_bad_addresses_fail_alone(billing: Broker, style: Style) -> None:
    addresses = [one.text for one in corpus("addresses") if "\ud800" not in one.text]
    bad = [
        DelayedRow(headers=write_json({FORWARD_DESTINATION: address}))
        for address in [*addresses, *_BROKERS_OWN]
    ]
    good = numbered(3)
    world = world_on(queue_of(billing.url, style=style), *bad, *good)

    run = world.sweep()

    assert arrived(billing, "Billing", 3) == dict.fromkeys(bodies(good), 1)
    assert set(world.store.attempts) == {row.key for row in bad}
    assert [end.reason for end in world.ends(run)] == [None]


def test_unusual_headers_arrive_or_are_refused_by_amqp(billing: Broker) -> None:
    rows = [
        DelayedRow(headers=one.text, body=str(number).encode())
        for number, one in enumerate(corpus("headers_json"))
    ]
    world = world_on(queue_of(billing.url), *rows)

    world.sweep()

    good = [row for row in rows if _fits_amqp(row)]
    assert len(good) == 10
    assert set(world.store.attempts) == {row.key for row in rows} - {row.key for row in good}
    assert arrived(billing, "Billing", len(good)) == dict.fromkeys(bodies(good), 1)


def _fits_amqp(row: DelayedRow) -> bool:
    """Whether its headers can be read, and have less than 128 kB."""
    try:
        headers = read_json(row.headers)
    except UnreadableHeadersError:
        return False
    return sum(len(f"{name}{value}") for name, value in headers.items()) < 128_000
