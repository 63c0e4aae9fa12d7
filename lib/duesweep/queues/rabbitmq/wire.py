"""A message as NServiceBus's RabbitMQ transport publishes it, at once or into the delay ladder.

As in recordings of the transport: NServiceBus's headers are AMQP's headers, and some of them are
AMQP's properties as well. The ladder counts in whole seconds.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from duesweep.core.errors import MessageError, RefusedMessageError
from duesweep.core.headers import FORWARD_DESTINATION
from duesweep.core.message import (
    ENCLOSED_MESSAGE_TYPES,
    FAILED_QUEUE,
    TIME_TO_BE_RECEIVED,
    Message,
)
from duesweep.core.policy import delay_level
from duesweep.core.times import read_time_span
from duesweep.drivers.rabbitmq.publisher import Publication
from duesweep.queues.rabbitmq.topology import (
    BROKER_HEADERS,
    DELAY_HEADER,
    Style,
    exchange_and_key,
    level_name,
    routing_key,
)

_CORRELATION_ID = "NServiceBus.CorrelationId"
_CONTENT_TYPE = "NServiceBus.ContentType"
_REPLY_TO = "NServiceBus.ReplyToAddress"
# With this header a sender asks for a message that is not persistent. It is not sent on.
_NOT_PERSISTENT = "NServiceBus.Transport.RabbitMQ.UseNonPersistentDelivery"
# Headers about the way here are not sent on either.
_NOT_SENT = {_NOT_PERSISTENT, FORWARD_DESTINATION, DELAY_HEADER, *BROKER_HEADERS}
# With these a sender asks the broker for copies. It reads them as lists of routing keys, and closes
# the channel for text, which all headers of NServiceBus are.
_LISTS = ("CC", "BCC")
# It stands for the consumer of a request on the same channel; the broker refuses it without one.
_DIRECT_REPLY = "amq.rabbitmq.reply-to"
_UNTYPED = "application/octet-stream"
_TRANSIENT, _PERSISTENT = 1, 2
# A broker counts milliseconds in 32 bits.
_LONGEST_EXPIRATION_MS = 2**32 - 1
_SECOND, _SECOND_US = timedelta(seconds=1), 1_000_000
# Each takes up to a second longer. That would be too long for all batches of a large sweep.
_HELD_BATCHES = 10


def direct_publication(message: Message, style: Style, destination: str) -> Publication:
    """The message as it goes to an endpoint at once. Raises `RefusedMessageError` for
    headers that RabbitMQ refuses.
    """
    exchange, key = exchange_and_key(style, destination)
    headers, properties = _headers_and_properties(message)
    # A message in the error queue does not expire: it waits for a person.
    expiration_ms = None if FAILED_QUEUE in headers else _expiration_ms(headers)
    if expiration_ms is not None:
        properties["expiration"] = str(expiration_ms)
    return Publication(exchange, key, headers, properties, message.body or b"")


def delayed_publication(message: Message, destination: str, seconds: int) -> Publication:
    """The message as it enters the delay ladder, to reach the endpoint in this time. Raises
    `RefusedMessageError` as `direct_publication` does.

    It has no expiration: with one, it would leave the ladder early.
    """
    headers, properties = _headers_and_properties(message)
    exchange = level_name(delay_level(seconds))
    key = routing_key(seconds, destination)
    return Publication(
        exchange, key, {**headers, DELAY_HEADER: seconds}, properties, message.body or b""
    )


def _headers_and_properties(message: Message) -> tuple[Mapping[str, Any], dict[str, Any]]:
    assert not isinstance(message.headers, MessageError)  # such messages are not delivered
    stored = message.headers
    headers = {name: value for name, value in stored.items() if name not in _NOT_SENT}
    _refuse_known(headers)
    content_type, types = headers.get(_CONTENT_TYPE), headers.get(ENCLOSED_MESSAGE_TYPES)
    properties = {
        # Receivers refuse a message without an id.
        "message_id": message.message_id or message.key,
        "content_type": _UNTYPED if content_type is None else content_type,
        "delivery_mode": _TRANSIENT if _NOT_PERSISTENT in stored else _PERSISTENT,
        "correlation_id": headers.get(_CORRELATION_ID),
        "type": types if types is None else types.split(",", 1)[0],
        "reply_to": headers.get(_REPLY_TO),
    }
    return headers, {name: value for name, value in properties.items() if value is not None}


def _refuse_known(headers: Mapping[str, str | None]) -> None:
    """Raise `RefusedMessageError` for a header for which the broker would close the channel."""
    if headers.get(_REPLY_TO) == _DIRECT_REPLY:
        raise RefusedMessageError(
            f"The message has {_DIRECT_REPLY} as its reply address, which RabbitMQ takes only from "
            "the channel of the request: it would close the channel"
        )
    for name in _LISTS:
        if name in headers:
            raise RefusedMessageError(
                f"The message has a header {name}, which RabbitMQ takes only as a list of routing "
                "keys: it would close the channel",
                advice="let the endpoint name its header otherwise",
            )


def _expiration_ms(headers: Mapping[str, str | None]) -> int | None:
    time_to_be_received = read_time_span(headers.get(TIME_TO_BE_RECEIVED))
    if time_to_be_received is None:
        return None
    milliseconds = time_to_be_received // timedelta(milliseconds=1)
    # A message that may wait longer than a broker can count never expires.
    return milliseconds if milliseconds <= _LONGEST_EXPIRATION_MS else None


class Punctuality:
    """In a session's first batches a message enters when its remaining delay is whole seconds. In
    later batches delays are rounded up: messages arrive up to a second after their Due. Not
    `is_wanted`: delays are rounded up in all batches.
    """

    def __init__(self, *, is_wanted: bool) -> None:
        self._batches_left = _HELD_BATCHES if is_wanted else 0

    def seconds_and_hold(self, left_us: int) -> tuple[int, float]:
        """For how many seconds a message waits in the ladder that is due in `left_us` microseconds,
        and after how many it enters. It never arrives early.
        """
        if not self._batches_left:
            return -(-left_us // _SECOND_US), 0.0
        seconds, rest_us = divmod(left_us, _SECOND_US)
        return seconds, rest_us / _SECOND_US

    def end_batch(self) -> None:
        self._batches_left = max(0, self._batches_left - 1)
