"""Questions to a broker, one at a time: what exists, and what to create."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from duesweep.drivers.rabbitmq.connection import RabbitMqConnection
from duesweep.drivers.rabbitmq.errors import channel_error

Ask = Callable[[Any, Callable[[Any], None]], object]


class Channel:
    """A channel for questions. If the broker refuses a question it closes the channel, and the
    next question opens another.
    """

    def __init__(self, connection: RabbitMqConnection) -> None:
        self._connection = connection
        self._pika: Any = None
        self._answer: Future[Any] = Future()

    def ask(self, ask: Ask) -> Any:
        """Call `ask` with pika's channel and a callback, and return the method of the broker's
        answer.

        Raises `ChannelClosedError` if the broker refuses, another `QueueError` if it does not
        answer.
        """
        if self._pika is None or not self._pika.is_open:
            self._pika = open_channel(self._connection)
            self._pika.add_on_close_callback(self._refuse)
        channel = self._pika

        def start(_: Any, answer: "Future[Any]") -> None:
            def set_answer(frame: Any) -> None:
                if not answer.done():
                    answer.set_result(frame.method)

            self._answer = answer
            ask(channel, set_answer)

        return self._connection.call(start)

    def _refuse(self, _: Any, error: BaseException) -> None:
        fault = channel_error(error)
        if fault is not None and not self._answer.done():
            self._answer.set_exception(fault)


def open_channel(connection: RabbitMqConnection) -> Any:
    """Open a channel of pika's."""

    def start(pika_connection: Any, answer: "Future[Any]") -> None:
        pika_connection.channel(on_open_callback=answer.set_result)

    return connection.call(start)
