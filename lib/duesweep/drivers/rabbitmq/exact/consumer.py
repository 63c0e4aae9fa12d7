"""Taking messages from a queue, many at a time. Each is acknowledged when it is safe elsewhere."""

import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from duesweep.drivers.rabbitmq.channel import open_channel
from duesweep.drivers.rabbitmq.errors import channel_error
from duesweep.drivers.rabbitmq.exact.connection import ExactRabbitMqConnection
from duesweep.drivers.rabbitmq.exact.values import Delivery
from duesweep.errors import QueueError


class Consumer:
    """A channel that receives a queue's messages, at most `prefetch` of them unacknowledged. When
    it is closed, unacknowledged messages go back to the queue. To be used by one thread beside the
    connection's.
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

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def unacknowledged(self) -> int:
        """How many messages came and are not acknowledged yet."""
        return self._unacknowledged

    def take(self, most: int, seconds: float) -> list[Delivery]:
        """Up to `most` messages; waits at most so long for the first. Raises `QueueError` if the
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
        """Let another `prefetch` messages come, beside those that stay unacknowledged."""

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
