"""A connection to a broker, driven by a thread of its own: heartbeats survive whatever its user
does between two calls.

Pika is not thread-safe. Its objects are touched by that thread alone; calls are handed to it, and
their answers come back as futures.
"""

import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Self

import pika
import pika.exceptions

from duesweep.drivers.rabbitmq.brokers import Brokers, shown
from duesweep.drivers.rabbitmq.errors import UnansweredError, connect_error, lost_error
from duesweep.drivers.rabbitmq.values import SEQUENCE_HEADER
from duesweep.errors import ConfigError, DuesweepError, QueueError

# What it has to say is raised here, and said by whoever can do something about it; those who want
# to read pika's own log can still handle it.
logging.getLogger("pika").addHandler(logging.NullHandler())
_CLOSE_SECONDS = 3.0
# For one of many brokers.
_LEAST_SECONDS = 0.2
# On, and for no time: what is unsent or unread goes with the connection.
_NO_LINGER = struct.pack("ii", 1, 0)


class RabbitMqConnection:
    """An open connection to the first broker that answers, and is to answer each question within
    so many seconds; by default within what the driver waits. All brokers together have the time
    for one connection. Closed on leaving.
    """

    # What a subclass replaces to see messages in another form.
    _pika_connection: Any = pika.SelectConnection

    def __init__(self, brokers: Brokers, answer_seconds: float | None = None) -> None:
        timeouts = brokers.timeouts
        self._answer_seconds = answer_seconds or timeouts.driver_seconds
        self._close_seconds = min(_CLOSE_SECONDS, timeouts.connect_seconds / 2)
        self._is_silent = False
        refusals: list[DuesweepError] = []
        parameters_of_all = brokers.parameters()
        deadline = time.monotonic() + timeouts.connect_seconds
        for index, parameters in enumerate(parameters_of_all):
            left = max(0.0, deadline - time.monotonic()) / (len(parameters_of_all) - index)
            parameters.stack_timeout = min(parameters.stack_timeout, max(left, _LEAST_SECONDS))
            parameters.socket_timeout = parameters.stack_timeout
            try:
                self._open(parameters)
                return
            except DuesweepError as error:
                refusals.append(error)
        raise _worst(refusals)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker takes no publications now (memory, disk); None where it takes them."""
        return self._blocked

    @property
    def loss(self) -> QueueError | None:
        """What ended the connection; None while it lives."""
        return self._loss

    @property
    def frame_bytes(self) -> int:
        """The longest frame that the broker takes."""
        frame_max: int = self._pika.params.frame_max
        return frame_max

    @property
    def server_version(self) -> str:
        """RabbitMQ's version."""
        return str(self._pika.server_properties.get("version", ""))

    def sequence_number(self, properties: Any) -> int | None:
        """The number that a publisher gave to a message that the broker returned."""
        number: int | None = (properties.headers or {}).get(SEQUENCE_HEADER)
        return number

    def run(self, act: Callable[[Any], None]) -> None:
        """Have the connection's thread call `act` with pika's connection."""
        with self._guard:
            if self._loss is not None:
                raise self._loss
            self._pika.ioloop.add_callback_threadsafe(lambda: act(self._pika))

    def call(self, act: Callable[[Any, "Future[Any]"], None]) -> Any:
        """What `act` sets its future to, on the connection's thread; `QueueError` where the
        connection is lost, `UnansweredError` where nothing comes.
        """
        future: Future[Any] = Future()
        with self._guard:
            self._waiting.add(future)
        try:
            self.run(lambda connection: _guarded(act, connection, future))
            return future.result(self._answer_seconds)
        except TimeoutError:
            raise self.silence(self._answer_seconds) from None
        finally:
            with self._guard:
                self._waiting.discard(future)

    def on_change(self, tell: Callable[[], None]) -> None:
        """Call `tell`, on the connection's thread, when it is lost, blocked or unblocked."""
        self._listeners.append(tell)

    def forget(self, tell: Callable[[], None]) -> None:
        """Call it no more."""
        with suppress(ValueError):
            self._listeners.remove(tell)

    def silence(self, seconds: float, done: str = "answered") -> UnansweredError:
        """What to say where it has not done so for so long. Its end is not waited for then."""
        self._is_silent = True
        return UnansweredError(
            f"RabbitMQ at {self._name} has not {done} for {seconds:.0f} s",
            advice=(
                "see whether it, or a proxy before it, is stuck, or raise timeouts.silence_seconds"
            ),
            transient=True,
        )

    def close(self) -> None:
        """End the connection; what is unconfirmed stays so."""
        if not self._is_silent:
            with suppress(QueueError):
                self.run(lambda connection: connection.close() if connection.is_open else None)
            self._thread.join(self._close_seconds)
        if self._thread.is_alive():
            with suppress(QueueError):
                self.run(_hang_up)
            self._thread.join(self._close_seconds)

    def _open(self, parameters: pika.connection.Parameters) -> None:
        self._name = shown(parameters)
        self._guard = threading.RLock()
        opened: Future[None] = Future()
        self._waiting: set[Future[Any]] = {opened}
        self._listeners: list[Callable[[], None]] = []
        self._blocked: str | None = None
        self._loss: QueueError | None = None
        self._pika = self._pika_connection(
            parameters,
            on_open_callback=lambda _: opened.set_result(None),
            on_open_error_callback=lambda _, error: self._fail(opened, error),
            on_close_callback=lambda _, error: self._lose(error),
        )
        self._pika.add_on_connection_blocked_callback(self._block)
        self._pika.add_on_connection_unblocked_callback(self._unblock)
        self._thread = threading.Thread(target=self._drive, name="rabbitmq", daemon=True)
        self._thread.start()
        try:
            opened.result()
        except DuesweepError:
            # Or it would find the next broker's connection in place of its own.
            self._thread.join()
            raise

    def _drive(self) -> None:
        try:
            self._pika.ioloop.start()
        except BaseException as error:  # noqa: BLE001 - whoever waits for an answer must get one
            self._lose(error)
        finally:
            with suppress(Exception):
                self._pika.ioloop.close()

    def _fail(self, opened: "Future[None]", error: BaseException) -> None:
        opened.set_exception(connect_error(self._name, error))
        self._pika.ioloop.stop()

    def _lose(self, error: BaseException) -> None:
        with self._guard:
            self._loss = self._loss or lost_error(self._name, error)
            waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_exception(self._loss)
        self._tell()
        self._pika.ioloop.stop()

    def _block(self, _: object, frame: Any) -> None:
        self._blocked = f"RabbitMQ at {self._name} takes no messages now: {frame.method.reason}"
        self._tell()

    def _unblock(self, _: object, __: object) -> None:
        self._blocked = None
        self._tell()

    def _tell(self) -> None:
        for tell in list(self._listeners):
            tell()


def _guarded(
    act: Callable[[Any, "Future[Any]"], None], connection: Any, future: "Future[Any]"
) -> None:
    try:
        act(connection, future)
    except (pika.exceptions.AMQPError, ValueError, TypeError) as error:
        if not future.done():
            future.set_exception(QueueError(str(error) or type(error).__name__, transient=True))


def _hang_up(connection: Any) -> None:
    """Drop a connection that is closing, and whose broker does not answer to that: one without
    memory left reads nothing. With a reset, so that it does not read messages later on that were
    given up here.
    """
    transport = connection._transport  # noqa: SLF001 - pika waits for a broker's answer for ever
    if transport is not None:
        with suppress(OSError):
            transport._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)  # noqa: SLF001
        transport.abort()


def _worst(refusals: Sequence[DuesweepError]) -> DuesweepError:
    """What to say of them all: one that is down may come up again, wrong settings stay wrong."""
    passing = [error for error in refusals if not isinstance(error, ConfigError)]
    return (passing or list(refusals))[-1]
