"""Publishing with confirms, with thousands of messages in flight."""

import heapq
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile
from typing import Any

import pika
import pika.exceptions

from duesweep.core.errors import QueueError
from duesweep.drivers.rabbitmq.connection import SEQUENCE_HEADER, RabbitMqConnection, open_channel
from duesweep.drivers.rabbitmq.errors import channel_error

# A frame has a head and an end; a content header has its class, size and flags.
_FRAME_OVERHEAD = 8 + 16
# So that messages that are due at about the same moment go out together.
_LEAST_HOLD_SECONDS = 0.02
_UNWRITABLE = (pika.exceptions.AMQPError, ValueError, TypeError, OverflowError)


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
        """What pika takes as properties, with the publication's number as a header. Raises
        `ValueError` for properties that are longer than `max_bytes`: a broker would close the
        whole connection.

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
    """The outcome of a publication. The broker may have one that is `UNKNOWN`, or not. It cannot
    have one that is `UNSENT`. One that is `UNSENDABLE` cannot be written in AMQP's format.
    """

    CONFIRMED = "confirmed"
    REFUSED = "refused"
    RETURNED = "returned"
    UNKNOWN = "unknown"
    UNSENT = "unsent"
    UNSENDABLE = "unsendable"


class Publisher:
    """A channel with confirms. Publications go out in order, except held ones. At
    most `max_in_flight` of them are unconfirmed at a time. `take_results` returns their outcomes.

    If the channel ends, the publisher ends: `fault` says why, and a new publisher is needed. To be
    used by one thread other than the connection's.
    """

    def __init__(self, connection: RabbitMqConnection, max_in_flight: int) -> None:
        self._connection = connection
        self._max_in_flight = max_in_flight
        self._changed = threading.Condition()
        self._waiting: deque[tuple[int, Publication]] = deque()
        # A heap, by the moment to send each.
        self._held: list[tuple[float, int, Publication]] = []
        self._alarm: object | None = None
        self._in_flight: dict[int, int] = {}
        self._returned: set[int | None] = set()
        self._results: list[PublishResult | None] = []
        self._tag = 0
        self._waited_seconds = 0.0
        self._fault: QueueError | None = None
        self._header_bytes = connection.frame_bytes - _FRAME_OVERHEAD
        self._loop: Any = None
        self._channel = open_channel(connection)
        connection.call(self._prepare)
        connection.on_change(self._on_connection_change)

    @property
    def fault(self) -> QueueError | None:
        """What ended the publisher; None while it can be used."""
        return self._fault

    def publish(
        self, publications: Sequence[Publication], hold_seconds: Sequence[float] = ()
    ) -> int:
        """Queue publications and do not wait. Returns the index of the first of them among the
        results. `hold_seconds`: how long to hold each before it is sent.
        """
        first = len(self._results)
        with self._changed:
            self._results += [None] * len(publications)
            if any(hold_seconds):
                now, held = time.monotonic(), zip(publications, hold_seconds, strict=True)
                for index, (one, seconds) in enumerate(held, first):
                    heapq.heappush(self._held, (now + seconds, index, one))
            else:
                self._waiting += enumerate(publications, first)
        if self._fault is None:
            try:
                self._connection.run(lambda _: self._pump())
            except QueueError as error:
                self._end(error)
        return first

    def wait(self, seconds: float) -> None:
        """Wait until the results of all publications are known, but at most `seconds`."""
        with self._changed:
            self._waited_seconds += seconds
            self._changed.wait_for(self._is_settled, seconds)

    def take_results(self) -> list[PublishResult]:
        """The result of each publication since the last call, in order.

        Ends the publisher if a result is unknown, because a later confirm would have no message.
        """
        with self._changed:
            unsent = {index for index, _ in self._waiting} | {index for _, index, _ in self._held}
            seconds, self._waited_seconds = self._waited_seconds, 0.0
            results = [
                result or (PublishResult.UNSENT if index in unsent else PublishResult.UNKNOWN)
                for index, result in enumerate(self._results)
            ]
            self._waiting.clear()
            self._held.clear()
            self._results.clear()
            is_certain = not self._in_flight
        if not is_certain and self._fault is None:
            self._end(self._connection.silence(seconds, "confirmed messages"))
            with suppress(QueueError):
                self._connection.run(
                    lambda _: self._channel.close() if self._channel.is_open else None
                )
        return results

    def _is_settled(self) -> bool:
        if self._fault is not None or not (self._held or self._waiting or self._in_flight):
            return True
        # A blocked broker may still confirm messages in flight, but nothing else is sent to it.
        return self._connection.blocked_reason is not None and not self._in_flight

    def _prepare(self, connection: Any, answer: Any) -> None:
        self._loop = connection.ioloop
        self._channel.add_on_close_callback(self._on_close)
        self._channel.add_on_return_callback(self._note_return)
        self._channel.confirm_delivery(
            ack_nack_callback=self._note_confirm, callback=lambda _: answer.set_result(None)
        )

    def _on_close(self, _: Any, error: BaseException) -> None:
        fault = channel_error(error)
        if fault is not None:
            self._end(fault)

    def _on_connection_change(self) -> None:
        if self._connection.loss is not None:
            self._end(self._connection.loss)
        elif self._connection.blocked_reason is None:
            self._pump()
        else:
            with self._changed:
                self._changed.notify_all()

    def _pump(self) -> None:
        """Send as many as may be in flight. This and all methods below run on the connection's
        thread.
        """
        with self._changed:
            self._release()
            while self._waiting and self._takes_more():
                index, publication = self._waiting.popleft()
                self._send(index, publication)
            if self._is_settled():
                self._changed.notify_all()

    def _release(self) -> None:
        """Move messages that were held long enough to the waiting ones; call later for the next."""
        if not self._held:
            return
        now = time.monotonic()
        while self._held and self._held[0][0] <= now:
            _, index, publication = heapq.heappop(self._held)
            self._waiting.append((index, publication))
        if self._held and self._alarm is None and self._fault is None:
            seconds = max(_LEAST_HOLD_SECONDS, self._held[0][0] - now)
            self._alarm = self._loop.call_later(seconds, self._wake)

    def _wake(self) -> None:
        self._alarm = None
        self._pump()

    def _takes_more(self) -> bool:
        return (
            self._fault is None
            and self._channel.is_open
            and len(self._in_flight) < self._max_in_flight
            and self._connection.blocked_reason is None
        )

    def _send(self, index: int, publication: Publication) -> None:
        tag = self._tag + 1
        try:
            properties = publication.encode_properties(tag, self._header_bytes)
            self._channel.basic_publish(
                publication.exchange,
                publication.routing_key,
                publication.body,
                properties,
                mandatory=True,
            )
        except _UNWRITABLE:
            # Nothing was written: pika encodes the whole message first.
            self._results[index] = PublishResult.UNSENDABLE
            return
        self._tag = tag
        self._in_flight[tag] = index

    def _note_return(self, _: Any, __: Any, properties: Any, ___: bytes) -> None:
        self._returned.add(self._connection.sequence_number(properties))

    def _note_confirm(self, frame: Any) -> None:
        method = frame.method
        with self._changed:
            for tag in self._tags(method.delivery_tag, multiple=method.multiple):
                index = self._in_flight.pop(tag)
                if index < len(self._results):
                    self._results[index] = self._result(method.NAME, tag)
        self._pump()

    def _tags(self, last: int, *, multiple: bool) -> Sequence[int]:
        if multiple:
            return list(takewhile(lambda tag: tag <= last, self._in_flight))
        return [last] if last in self._in_flight else []

    def _result(self, name: str, tag: int) -> PublishResult:
        if tag in self._returned:
            self._returned.discard(tag)
            return PublishResult.RETURNED
        return PublishResult.CONFIRMED if name == "Basic.Ack" else PublishResult.REFUSED

    def _end(self, fault: QueueError) -> None:
        with self._changed:
            self._fault = self._fault or fault
            self._changed.notify_all()
        self._connection.forget(self._on_connection_change)
