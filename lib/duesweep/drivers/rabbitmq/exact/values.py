"""The messages that the migration takes, and those that it publishes."""

from dataclasses import dataclass
from typing import Any

import pika

from duesweep.drivers.rabbitmq.exact.encoded import Encoded
from duesweep.drivers.rabbitmq.values import SEQUENCE_HEADER, require_header_size


class ExactProperties:
    """Stands for pika's properties of a message that is published, and is sent as it is."""

    INDEX = pika.BasicProperties.INDEX

    def __init__(self, encoded: Encoded) -> None:
        self._block = encoded.block()

    def encode(self) -> list[bytes]:
        """The pieces of a content header; pika calls this."""
        return [self._block]


@dataclass(frozen=True, slots=True)
class Copy:
    """A message to publish with its properties as they came."""

    exchange: str
    routing_key: str
    encoded: Encoded
    body: bytes

    def encode_properties(self, number: int, max_bytes: int) -> Any:
        """The properties, with the publication's number as a header. Raises `ValueError` for
        properties that are longer than `max_bytes`.
        """
        properties = ExactProperties(self.encoded.with_number(SEQUENCE_HEADER, number))
        require_header_size(properties, max_bytes)
        return properties


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that was taken from a queue. The broker knows it by its `tag` when it is
    acknowledged.

    `is_redelivered`: it was delivered to somebody before, who has not acknowledged it.
    """

    tag: int
    routing_key: str
    encoded: Encoded
    body: bytes
    is_redelivered: bool
