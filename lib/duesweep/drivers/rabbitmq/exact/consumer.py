"""Taking messages from a queue, many at a time, each acknowledged when it is safe elsewhere."""

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
    """A channel on which a queue's messages come, at most `prefetch` of them unacknowledged. What
    is not acknowledged goes back when it is closed. For one thread beside the connection's.
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
        connection.on_change(self._connection_changed)
        connection.call(self._prepare)

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def unacknowledged(self) -> int:
        """How many messages came, and are not acknowledged."""
        return self._unacknowledged

    def take(self, most: int, seconds: float) -> list[Delivery]:
        """Wait at most so long for messages; `most` of those that came. Raises `QueueError` where
        the channel has ended.
        """
        with self._arrived:
            self._arrived.wait_for(lambda: self._deliveries or self._fault, seconds)
            if self._fault is not None:
                raise self._fault
            return [self._deliveries.popleft() for _ in range(min(most, len(self._deliveries)))]

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Have the broker forget them."""
        tags = [delivery.tag for delivery in deliveries]

        def start(_: Any, answer: Any) -> None:
            for tag in tags:
                self._channel.basic_ack(tag)
            answer.set_result(None)

        self._connection.call(start)
        with self._arrived:
            self._unacknowledged -= len(tags)

    def begin_anew(self) -> None:
        """Let another `prefetch` come, beside what is held unacknowledged."""

        def cancel(_: Any, answer: Any) -> None:
            self._channel.basic_cancel(self._tag, callback=answer.set_result)

        self._connection.call(cancel)
        self._connection.call(self._consume)

    def close(self) -> None:
        """End the channel; some time after, its queue has back what is not acknowledged."""
        if self._fault is None:
            self._fault = QueueError(f"Nothing more is taken from {self._queue}", transient=True)
            with suppress(QueueError):
                self._connection.run(lambda _: self._channel.close())
        self._connection.forget(self._connection_changed)

    def _prepare(self, connection: Any, answer: Any) -> None:
        def refused(_: Any, error: BaseException) -> None:
            fault = channel_error(error)
            if fault is not None:
                self._end(fault)
                if not answer.done():
                    answer.set_exception(fault)

        self._channel.add_on_close_callback(refused)
        self._channel.add_on_cancel_callback(lambda _: self._end(self._cancelled()))
        # For each consumer, not for the channel: `begin_anew` depends on it.
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

    def _cancelled(self) -> QueueError:
        return QueueError(
            f"RabbitMQ hands out nothing more of queue {self._queue}: it was deleted, or moved to "
            "another node",
            transient=True,
            advice="run the command again",
        )

    def _connection_changed(self) -> None:
        if self._connection.loss is not None:
            self._end(self._connection.loss)

    def _end(self, fault: QueueError) -> None:
        with self._arrived:
            self._fault = self._fault or fault
            self._arrived.notify_all()
