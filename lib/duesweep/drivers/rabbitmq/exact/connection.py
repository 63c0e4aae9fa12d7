"""A connection that leaves the properties of the messages that it receives as they are on the wire.

pika has no option for this, so its private method that reads a frame is overridden. If a new
version of pika renames that method, the migration's contract tests fail.
"""

import struct
from typing import Any

import pika

from duesweep.drivers.rabbitmq.connection import RabbitMqConnection
from duesweep.drivers.rabbitmq.exact.encoded import Encoded
from duesweep.drivers.rabbitmq.values import SEQUENCE_HEADER

_FRAME_HEAD = struct.Struct(">BHL")
# A content header has its class and weight before the body's length.
_CONTENT_HEAD = struct.Struct(">HHQ")


class ExactConnection(pika.SelectConnection):  # type: ignore[misc]  # pika has no types
    """pika's connection, with an `Encoded` in place of pika's properties."""

    def _read_frame(self) -> tuple[int, Any]:
        buffer = self._frame_buffer
        if len(buffer) < _FRAME_HEAD.size or buffer[0] != pika.spec.FRAME_HEADER:
            read: tuple[int, Any] = super()._read_frame()
            return read
        _, channel, length = _FRAME_HEAD.unpack_from(buffer)
        end = _FRAME_HEAD.size + length
        if len(buffer) <= end:
            return 0, None
        _, _, body_bytes = _CONTENT_HEAD.unpack_from(buffer, _FRAME_HEAD.size)
        block = bytes(buffer[_FRAME_HEAD.size + _CONTENT_HEAD.size : end])
        return end + 1, pika.frame.Header(channel, body_bytes, Encoded.parse(block))


class ExactRabbitMqConnection(RabbitMqConnection):
    """An open connection whose received messages have `Encoded` properties."""

    _pika_connection = ExactConnection

    def sequence_number(self, properties: Encoded) -> int | None:
        """The number that a publisher gave to a message that the broker returned."""
        return properties.number(SEQUENCE_HEADER)
