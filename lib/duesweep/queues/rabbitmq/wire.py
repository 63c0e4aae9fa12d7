"""A message as NServiceBus's RabbitMQ transport publishes it.

As in recordings of the transport: NServiceBus's headers are AMQP's headers, and some of them are
AMQP's properties, too.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from duesweep.core.duration import read_time_span
from duesweep.core.fault_headers import FAILED_QUEUE
from duesweep.core.headers.json import FORWARD_DESTINATION
from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, Message
from duesweep.core.policy import delay_level
from duesweep.core.transport_message import TIME_TO_BE_RECEIVED
from duesweep.drivers.rabbitmq import Publication
from duesweep.errors import MessageError
from duesweep.queues.rabbitmq import ladder
from duesweep.queues.rabbitmq.topology import Style, entry

_CORRELATION_ID = "NServiceBus.CorrelationId"
_CONTENT_TYPE = "NServiceBus.ContentType"
_REPLY_TO = "NServiceBus.ReplyToAddress"
# With this header a sender asks for a message that is not persistent. It is not sent on.
_NOT_PERSISTENT = "NServiceBus.Transport.RabbitMQ.UseNonPersistentDelivery"
# Headers about the way here are not sent on either.
_NOT_SENT = {_NOT_PERSISTENT, FORWARD_DESTINATION, ladder.DELAY_HEADER, *ladder.BROKER_HEADERS}
_UNTYPED = "application/octet-stream"
_TRANSIENT, _PERSISTENT = 1, 2
# A broker counts milliseconds in 32 bits.
_LONGEST_EXPIRATION_MS = 2**32 - 1


def direct_publication(message: Message, style: Style, destination: str) -> Publication:
    """The message as it goes to an endpoint at once."""
    exchange, key = entry(style, destination)
    headers, properties = _headers_and_properties(message)
    # A message in the error queue does not expire: it waits for a person.
    expiration_ms = None if FAILED_QUEUE in headers else _expiration_ms(headers)
    if expiration_ms is not None:
        properties["expiration"] = str(expiration_ms)
    return Publication(exchange, key, headers, properties, message.body or b"")


def delayed_publication(message: Message, destination: str, seconds: int) -> Publication:
    """The message as it enters the delay ladder, to reach the endpoint in so many seconds.

    It has no expiration: with one, it would leave the ladder early.
    """
    headers, properties = _headers_and_properties(message)
    exchange = ladder.level_name(delay_level(seconds))
    key = ladder.routing_key(seconds, destination)
    return Publication(
        exchange, key, {**headers, ladder.DELAY_HEADER: seconds}, properties, message.body or b""
    )


def _headers_and_properties(message: Message) -> tuple[Mapping[str, Any], dict[str, Any]]:
    assert not isinstance(message.headers, MessageError)  # such messages are not delivered
    stored = message.headers
    headers = {name: value for name, value in stored.items() if name not in _NOT_SENT}
    content_type = headers.get(_CONTENT_TYPE)
    properties = {
        # Receivers refuse a message without an id.
        "message_id": message.message_id or message.key,
        "content_type": _UNTYPED if content_type is None else content_type,
        "delivery_mode": _TRANSIENT if _NOT_PERSISTENT in stored else _PERSISTENT,
        "correlation_id": headers.get(_CORRELATION_ID),
        "type": _cut_at_comma(headers.get(ENCLOSED_MESSAGE_TYPES)),
        "reply_to": headers.get(_REPLY_TO),
    }
    return headers, {name: value for name, value in properties.items() if value is not None}


def _cut_at_comma(types: str | None) -> str | None:
    return None if types is None else types.split(",", 1)[0]


def _expiration_ms(headers: Mapping[str, str | None]) -> int | None:
    time_to_be_received = read_time_span(headers.get(TIME_TO_BE_RECEIVED))
    if time_to_be_received is None:
        return None
    milliseconds = time_to_be_received // timedelta(milliseconds=1)
    # A message that may wait longer than a broker can count never expires.
    return milliseconds if milliseconds <= _LONGEST_EXPIRATION_MS else None
