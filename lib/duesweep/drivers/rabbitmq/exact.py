"""A connection of pika's that leaves the properties of what it receives, and of copies that it
sends, as they are on the wire.
"""

import struct
from typing import Any

import pika

from duesweep.drivers.rabbitmq.encoded import Encoded

_FRAME_HEAD = struct.Struct(">BHL")
# Of a content header: its class and weight come before the body's length.
_CONTENT_HEAD = struct.Struct(">HHQ")


class ExactConnection(pika.SelectConnection):  # type: ignore[misc]  # pika has no types
    """`Encoded` stands where pika would put its own properties."""

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


class ExactProperties:
    """What pika takes for properties of its own, and sends as they are."""

    INDEX = pika.BasicProperties.INDEX

    def __init__(self, encoded: Encoded) -> None:
        self._block = encoded.block()

    def encode(self) -> list[bytes]:
        """Pieces of a content header."""
        return [self._block]
