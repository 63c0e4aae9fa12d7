"""Questions to a broker, one at a time: what is there, and what there is to be."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from duesweep.drivers.rabbitmq.connection import Connection
from duesweep.drivers.rabbitmq.errors import channel_error

Ask = Callable[[Any, Callable[[Any], None]], object]


class Channel:
    """A channel for questions. The broker closes it over each that it answers with a refusal; the
    next question opens another.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pika: Any = None

    def ask(self, ask: Ask) -> Any:
        """The method of the broker's answer, where `ask` asks pika's channel something and gives
        it the callback that it is handed. Raises `ChannelClosedError` where the broker refuses,
        another `QueueError` where none answers.
        """
        if self._pika is None or not self._pika.is_open:
            self._pika = open_channel(self._connection)
        channel = self._pika

        def start(_: Any, answer: "Future[Any]") -> None:
            def refused(_: Any, error: BaseException) -> None:
                if not answer.done():
                    answer.set_exception(channel_error(error))

            def answered(frame: Any) -> None:
                if not answer.done():
                    answer.set_result(frame.method)

            channel.add_on_close_callback(refused)
            ask(channel, answered)

        return self._connection.call(start)


def open_channel(connection: Connection) -> Any:
    """A new channel of pika's, open."""

    def start(pika_connection: Any, answer: "Future[Any]") -> None:
        pika_connection.channel(on_open_callback=answer.set_result)

    return connection.call(start)
