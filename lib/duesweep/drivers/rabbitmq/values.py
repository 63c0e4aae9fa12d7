"""The values that cross the driver of RabbitMQ."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from duesweep.drivers.rabbitmq.encoded import Encoded

# The name of the header by which RabbitMQ's .NET client finds a returned message again; that is
# why NServiceBus's receivers take it off, which they would not do with one of ours.
SEQUENCE_HEADER = "x-dotnet-pub-seq-no"


@dataclass(frozen=True, slots=True)
class Publication:
    """A message to publish. `headers` hold text, numbers, bytes, None (AMQP's void) and tables and
    lists of these; `properties` are the other ones that are set, by AMQP's names; `body` bytes.
    """

    exchange: str
    routing_key: str
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    body: bytes


class PublishResult(Enum):
    """What became of a publication. Of one that is `UNKNOWN` the broker may have it, or not; one
    that is `UNSENT` it cannot have; `UNSENDABLE` cannot be written in AMQP's format.
    """

    CONFIRMED = "confirmed"
    REFUSED = "refused"
    RETURNED = "returned"
    UNKNOWN = "unknown"
    UNSENT = "unsent"
    UNSENDABLE = "unsendable"


@dataclass(frozen=True, slots=True)
class Copy:
    """A message to publish with its properties as they came."""

    exchange: str
    routing_key: str
    encoded: Encoded
    body: bytes


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that was taken from a queue, and its tag, by which it is acknowledged.

    `is_redelivered`: somebody was given it before, and has not acknowledged it.
    """

    tag: int
    routing_key: str
    encoded: Encoded
    body: bytes
    is_redelivered: bool
