"""The values that cross the driver of RabbitMQ."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import pika

# RabbitMQ's .NET client finds a returned message by this header, and NServiceBus's receivers remove
# it for that reason. They would not remove a header of ours.
SEQUENCE_HEADER = "x-dotnet-pub-seq-no"


class Publishable(Protocol):
    """What a publisher publishes."""

    @property
    def exchange(self) -> str:
        """The exchange to publish to; "" is the default exchange."""

    @property
    def routing_key(self) -> str:
        """The routing key."""

    @property
    def body(self) -> bytes:
        """The body."""

    def encode_properties(self, number: int, max_bytes: int) -> Any:
        """What pika takes as properties, with the publication's number as a header. Raises
        `ValueError` for properties that are longer than `max_bytes`: a broker would close the
        whole connection.
        """


@dataclass(frozen=True, slots=True)
class Publication:
    """A message to publish. `headers` are text, numbers, bytes, None (AMQP's void), and tables and
    lists of these. `properties` are the others that are set, by AMQP's names.
    """

    exchange: str
    routing_key: str
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    body: bytes

    def encode_properties(self, number: int, max_bytes: int) -> Any:
        """pika's properties. Raises `ValueError` if they are longer than `max_bytes`.

        If AMQP has no format for one of them, pika raises an error when it encodes them.
        """
        headers = {**self.headers, SEQUENCE_HEADER: number}
        properties = pika.BasicProperties(headers=headers, **self.properties)
        # A character has four bytes at most.
        length = sum(len(str(name)) + len(str(value)) for name, value in self.headers.items())
        if 4 * length >= max_bytes // 2:
            require_header_size(properties, max_bytes)
        return properties


def require_header_size(properties: Any, max_bytes: int) -> None:
    """Raise `ValueError` for properties that take more than `max_bytes`."""
    if sum(map(len, properties.encode())) > max_bytes:
        raise ValueError("The headers do not fit a frame")


class PublishResult(Enum):
    """What became of a publication. The broker may have one that is `UNKNOWN`, or not. It cannot
    have one that is `UNSENT`. One that is `UNSENDABLE` cannot be written in AMQP's format.
    """

    CONFIRMED = "confirmed"
    REFUSED = "refused"
    RETURNED = "returned"
    UNKNOWN = "unknown"
    UNSENT = "unsent"
    UNSENDABLE = "unsendable"
