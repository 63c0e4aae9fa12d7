"""Messages that are taken from a queue and published again byte for byte.

Only the migration between delay ladders needs this, and only it imports this module. Converting a
message's properties to Python's values and back would change them: numbers lose their width and
their fractions, and text that is not UTF-8 becomes a byte array.

pika has no option for this, so its private method that reads a frame is overridden. If a new
version of pika renames that method, the migration's contract tests fail.
"""

import struct
import threading
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

import pika

from duesweep.core.errors import QueueError
from duesweep.drivers.rabbitmq.connection import SEQUENCE_HEADER, RabbitMqConnection, open_channel
from duesweep.drivers.rabbitmq.errors import channel_error
from duesweep.drivers.rabbitmq.publisher import Publication, require_header_size

_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS = 1 << 15, 1 << 14, 1 << 13
_TEXTS = {b"S", b"x"}
# By the letter of the type. RabbitMQ reads both `l` and `L` as signed.
_INTEGERS = {
    b"b": ">b", b"B": ">B", b"s": ">h", b"U": ">h", b"u": ">H",
    b"I": ">i", b"i": ">I", b"l": ">q", b"L": ">q",
}  # fmt: skip
_OTHER_SIZES = {b"t": 1, b"f": 4, b"d": 8, b"D": 5, b"T": 8, b"V": 0}
_SIZES = {kind: struct.calcsize(form) for kind, form in _INTEGERS.items()} | _OTHER_SIZES
_LENGTH = struct.Struct(">I")
_FRAME_HEAD = struct.Struct(">BHL")
# A content header has its class and weight before the body's length.
_CONTENT_HEAD = struct.Struct(">HHQ")


@dataclass(frozen=True, slots=True)
class Encoded:
    """A block of properties. `headers` are the entries of the table of headers: name, and value
    with the letter of its type; None without a table. `before` and `after` are the other
    properties around the table.
    """

    flags: int
    before: bytes
    headers: tuple[tuple[bytes, bytes], ...] | None
    after: bytes

    @classmethod
    def parse(cls, block: bytes) -> "Encoded":
        """Raises `ValueError` for bytes that are not a block of properties."""
        try:
            return cls._parse(block)
        except (struct.error, IndexError, KeyError) as error:
            raise ValueError(f"Not AMQP properties: {error!r}") from error

    @classmethod
    def _parse(cls, block: bytes) -> "Encoded":
        (flags,) = struct.unpack_from(">H", block)
        begin = end = 2
        for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
            if flags & flag:
                end += 1 + block[end]
        if not flags & _HEADERS:
            return cls(flags, block[begin:end], None, block[end:])
        (length,) = _LENGTH.unpack_from(block, end)
        table = block[end + _LENGTH.size : end + _LENGTH.size + length]
        after = block[end + _LENGTH.size + length :]
        return cls(flags, block[begin:end], tuple(_entries(table)), after)

    def block(self) -> bytes:
        """The properties as they go over the wire."""
        if self.headers is None:
            return struct.pack(">H", self.flags) + self.before + self.after
        table = b"".join(bytes((len(name),)) + name + value for name, value in self.headers)
        flags = struct.pack(">H", self.flags | _HEADERS)
        return flags + self.before + _LENGTH.pack(len(table)) + table + self.after

    def text(self, name: str) -> str | None:
        """A header that is text, or a byte array with text in it; else None."""
        value = self._value(name)
        if value is None or value[:1] not in _TEXTS:
            return None
        try:
            return value[1 + _LENGTH.size :].decode()
        except UnicodeDecodeError:
            return None

    def number(self, name: str) -> int | None:
        """A header that is a whole number; else None."""
        value = self._value(name)
        if value is None or value[:1] not in _INTEGERS:
            return None
        (number,) = struct.unpack_from(_INTEGERS[value[:1]], value, 1)
        return int(number)

    def without(self, names: Collection[str]) -> "Encoded":
        """The same without these headers."""
        gone = {name.encode() for name in names}
        kept = (entry for entry in self.headers or () if entry[0] not in gone)
        return replace(self, headers=None if self.headers is None else tuple(kept))

    def with_number(self, name: str, number: int) -> "Encoded":
        """The same with this header, instead of any other of that name."""
        entry = (name.encode(), struct.pack(">cq", b"l", number))
        return replace(self, headers=(*(self.without([name]).headers or ()), entry))

    def _value(self, name: str) -> bytes | None:
        wanted = name.encode()
        return next((value for known, value in self.headers or () if known == wanted), None)


def _entries(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(table):
        begin = at + 1 + table[at]
        end = begin + 1 + _value_size(table, begin)
        if end > len(table):
            raise IndexError(f"a header ends after its table, at {end}")
        yield table[at + 1 : begin], table[begin:end]
        at = end


def _value_size(table: bytes, at: int) -> int:
    kind = table[at : at + 1]
    if kind in _SIZES:
        return _SIZES[kind]
    if kind not in {b"S", b"x", b"A", b"F"}:
        raise KeyError(kind)
    (length,) = _LENGTH.unpack_from(table, at + 1)
    return _LENGTH.size + int(length)


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
        return properties.number(SEQUENCE_HEADER)


class ExactProperties:
    """Stands for pika's properties of a message that is published, and is sent as it is."""

    INDEX = pika.BasicProperties.INDEX

    def __init__(self, encoded: Encoded) -> None:
        self._block = encoded.block()

    def encode(self) -> list[bytes]:
        """The pieces of a content header; pika calls this."""
        return [self._block]


@dataclass(frozen=True, slots=True)
class Copy(Publication):
    """A message to publish with its properties, headers among them, as they came: `encoded`."""

    encoded: Encoded

    def encode_properties(self, number: int, max_bytes: int) -> Any:
        properties = ExactProperties(self.encoded.with_number(SEQUENCE_HEADER, number))
        require_header_size(properties, max_bytes)
        return properties


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that was taken from a queue. The broker knows it by its `tag` when it is
    acknowledged.

    `is_redelivered`: it was delivered before to a consumer that has not acknowledged it.
    """

    tag: int
    routing_key: str
    encoded: Encoded
    body: bytes
    is_redelivered: bool


class Consumer:
    """A channel that receives a queue's messages, at most `prefetch` of them unacknowledged. When
    it is closed, unacknowledged messages go back to the queue. To be used by one thread other than
    the connection's.
    """

    def __init__(self, connection: ExactRabbitMqConnection, queue: str, prefetch: int) -> None:
        self._connection = connection
        self._queue = queue
        self._prefetch = prefetch
        self._arrived = threading.Condition()
        self._deliveries: deque[Delivery] = deque()
        self._fault: QueueError | None = None
        self._tag = ""
        self._unacknowledged = 0
        self._channel = open_channel(connection)
        connection.on_change(self._on_connection_change)
        connection.call(self._prepare)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def unacknowledged(self) -> int:
        """How many messages came and are not acknowledged yet."""
        return self._unacknowledged

    def take(self, most: int, seconds: float) -> list[Delivery]:
        """Up to `most` messages; waits at most `seconds` for the first. Raises `QueueError` if the
        channel has ended.
        """
        with self._arrived:
            self._arrived.wait_for(lambda: self._deliveries or self._fault, seconds)
            if self._fault is not None:
                raise self._fault
            return [self._deliveries.popleft() for _ in range(min(most, len(self._deliveries)))]

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Let the broker remove these messages."""
        tags = [delivery.tag for delivery in deliveries]

        def start(_: Any, answer: Any) -> None:
            for tag in tags:
                self._channel.basic_ack(tag)
            answer.set_result(None)

        self._connection.call(start)
        with self._arrived:
            self._unacknowledged -= len(tags)

    def begin_anew(self) -> None:
        """Let another `prefetch` messages come, in addition to unacknowledged ones."""

        def cancel(_: Any, answer: Any) -> None:
            self._channel.basic_cancel(self._tag, callback=answer.set_result)

        self._connection.call(cancel)
        self._connection.call(self._consume)

    def close(self) -> None:
        """Close the channel. Unacknowledged messages are back in the queue some time later."""
        if self._fault is None:
            self._fault = QueueError(
                f"The consumer of queue {self._queue} is closed", transient=True
            )
            with suppress(QueueError):
                self._connection.run(lambda _: self._channel.close())
        self._connection.forget(self._on_connection_change)

    def _prepare(self, connection: Any, answer: Any) -> None:
        def on_close(_: Any, error: BaseException) -> None:
            fault = channel_error(error)
            if fault is not None:
                self._end(fault)
                if not answer.done():
                    answer.set_exception(fault)

        self._channel.add_on_close_callback(on_close)
        self._channel.add_on_cancel_callback(lambda _: self._end(self._cancel_error()))
        # This limit is for each consumer, not for the channel: `begin_anew` needs that.
        self._channel.basic_qos(
            prefetch_count=self._prefetch, callback=lambda _: self._consume(connection, answer)
        )

    def _consume(self, _: Any, answer: Any) -> None:
        self._tag = self._channel.basic_consume(self._queue, self._note, callback=answer.set_result)

    def _note(self, _: Any, method: Any, encoded: Any, body: bytes) -> None:
        with self._arrived:
            self._unacknowledged += 1
            self._deliveries.append(
                Delivery(method.delivery_tag, method.routing_key, encoded, body, method.redelivered)
            )
            self._arrived.notify_all()

    def _cancel_error(self) -> QueueError:
        return QueueError(
            f"RabbitMQ delivers no more messages of queue {self._queue}: the queue was deleted, or "
            "moved to another node",
            transient=True,
            advice="run the command again",
        )

    def _on_connection_change(self) -> None:
        if self._connection.loss is not None:
            self._end(self._connection.loss)

    def _end(self, fault: QueueError) -> None:
        with self._arrived:
            self._fault = self._fault or fault
            self._arrived.notify_all()
