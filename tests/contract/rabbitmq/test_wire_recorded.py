"""Recorded messages are published exactly as NServiceBus published them."""

from collections.abc import Mapping
from typing import Any

from duesweep.queues.rabbitmq import topology
from support.rabbitmq.broker import Broker
from support.rabbitmq.sessions import queue_session
from support.recordings import BrokerMessage, broker_messages, cases

_QUEUES = ("Billing", "Ship.ping")
_CONVERSATION = "NServiceBus.ConversationId"
_EXPIRES = "NServiceBus.TimeToBeReceived"
_PROPERTIES = (
    "type",
    "message_id",
    "reply_to",
    "correlation_id",
    "delivery_mode",
    "content_type",
    "expiration",
)
# Its transport's id is in no header, and in no table: the header's is what is left of it.
_IDS = {"guid-not-id": "order/42"}


def _arrived(properties: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Headers and the other properties, less what a broker and a client add."""
    headers = {n: v for n, v in properties.headers.items() if not n.startswith("x-")}
    found = {name: getattr(properties, name) for name in _PROPERTIES}
    return headers, {name: value for name, value in found.items() if value is not None}


def _wanted(one: BrokerMessage, name: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    headers = {n: v for n, v in one.headers.items() if n != topology.DELAY_HEADER}
    return headers, one.properties | ({"message_id": _IDS[name]} if name in _IDS else {})


def test_messages_equal_the_recorded_ones_property_by_property(broker: Broker) -> None:
    recorded = {one.headers[_CONVERSATION]: one for one in broker_messages()}
    sent = [case for case in cases() if case.conversation_id in recorded]
    ended = [case for case in sent if recorded[case.conversation_id].queue in _QUEUES]
    for name in _QUEUES:
        broker.create(name)

    with queue_session(broker) as session:
        for case in ended:
            assert session.deliver(session.resolve(case.to), [case.message()]) == {}
        assert session.confirm(10).unconfirmed == frozenset()

    taken = [
        (name, *one)
        for name in _QUEUES
        for one in broker.take_all(name, sum(case.to == name for case in ended))
    ]
    by_conversation = {case.conversation_id: case for case in ended}
    assert len(taken) == len(ended) == 19
    for queue, _, properties, body in taken:
        case = by_conversation[properties.headers[_CONVERSATION]]
        one = recorded[case.conversation_id]
        headers, found = _arrived(properties)
        headers.pop(_EXPIRES, None)
        assert (queue, body) == (one.queue, one.body)
        assert (headers, found) == _wanted(one, case.name)
