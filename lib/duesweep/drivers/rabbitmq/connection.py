"""Which brokers to connect to, a connection with a thread of its own, and questions on it.

The thread lets heartbeats continue while the connection's user does something else. pika is not
thread-safe. Only the connection's thread uses pika's objects. Calls are passed to that
thread, and their answers come back as futures.
"""

import logging
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

import pika
import pika.exceptions

from duesweep.core.errors import (
    NO_DESCRIPTORS,
    ConfigError,
    DuesweepError,
    QueueError,
    lacks_descriptors,
)
from duesweep.core.policy import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.dsn import DsnError
from duesweep.drivers.rabbitmq.errors import (
    UnansweredError,
    channel_error,
    connect_error,
    lost_error,
)
from duesweep.drivers.urls import for_pika

# Errors are raised, so pika's log lines are not printed as well. A handler of one's own for pika's
# logger still gets them.
logging.getLogger("pika").addHandler(logging.NullHandler())
# A peer that sends nothing for this long counts as dead.
_HEARTBEAT_SECONDS = 60
_LONGEST_CONNECT_SECONDS = 5.0
_CLOSE_SECONDS = 3.0
# The least time to connect to one of many brokers.
_LEAST_SECONDS = 0.2
# Linger for 0 s: closing drops unsent and unread data.
_NO_LINGER = struct.pack("ii", 1, 0)
# RabbitMQ's .NET client finds a returned message by this header, and NServiceBus's receivers remove
# it for that reason. They would not remove a header of ours.
SEQUENCE_HEADER = "x-dotnet-pub-seq-no"


@dataclass(frozen=True, slots=True)
class Brokers:
    """The AMQP URLs of one cluster's nodes, tried in this order. Connection strings of NServiceBus
    become URLs. Raises `ConfigError` for other texts.

    For `amqps`: `ca_file` has the authorities to trust instead of the machine's; `certificate` and
    `key` are the client's. All three are PEM files. The host's name is always checked.
    """

    urls: tuple[str, ...] = field(repr=False)
    setting: str
    ca_file: str | None = None
    certificate: str | None = None
    key: str | None = None
    timeouts: Timeouts = DEFAULT_TIMEOUTS

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "urls", tuple(map(for_pika, self.urls)))
        except DsnError as error:
            raise ConfigError(
                f"{self.setting}.url is wrong: {error.problem.text}", advice=error.problem.advice
            ) from None

    def parameters(self) -> Sequence[pika.connection.Parameters]:
        """pika's parameters for each broker. Raises `ConfigError` for a URL that cannot be used."""
        is_any_encrypted = any(url.startswith("amqps:") for url in self.urls)
        # Only once, because reading the machine's authorities takes time.
        context = self.context() if is_any_encrypted else None
        return [self._parameters(url, context) for url in self.urls]

    def context(self) -> ssl.SSLContext:
        """The TLS context. Raises `ConfigError` for certificate files that cannot be read."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate:
                # Without a password, OpenSSL would ask on the terminal for an encrypted key's.
                context.load_cert_chain(self.certificate, self.key, password="")
        except (OSError, ssl.SSLError) as error:
            if lacks_descriptors(error):
                text = f"{self.setting}: the certificates cannot be read: {NO_DESCRIPTORS.text}"
                raise QueueError(text, transient=True, advice=NO_DESCRIPTORS.advice) from error
            files = ", ".join(f for f in (self.ca_file, self.certificate, self.key) if f)
            raise ConfigError(
                f"{self.setting}: the certificates cannot be read ({files}): {error}",
                advice="check ca_file, client_certificate and client_key",
            ) from error
        return context

    def _parameters(self, url: str, context: ssl.SSLContext | None) -> pika.connection.Parameters:
        parts = urlsplit(url)
        if parts.username and parts.password is None:
            variable = f"DUESWEEP_{self.setting.upper().replace('.', '__')}__URL"
            raise ConfigError(
                f"{self.setting}.url has a user and no password",
                advice=f"give it in the environment: {variable}=amqps://user:password@host/...",
            )
        # Without a path pika takes the vhost "", which no broker has.
        path = url if parts.path not in {"", "/"} else parts._replace(path="/%2F").geturl()
        try:
            parameters = pika.URLParameters(path)
        except (ValueError, TypeError, AssertionError, LookupError, SyntaxError) as error:
            # An error's own text may quote the URL, and with it the password.
            raise ConfigError(
                f"{self.setting}.url cannot be read: {type(error).__name__}",
                advice="percent-encode each of : / @ ? # % [ ] in the user's name, password and "
                "vhost",
            ) from None
        longest = min(_LONGEST_CONNECT_SECONDS, self.timeouts.connect_seconds)
        parameters.socket_timeout = parameters.stack_timeout = longest
        if parameters.heartbeat is None:
            parameters.heartbeat = _HEARTBEAT_SECONDS
        parameters.client_properties = {"connection_name": "duesweep"}
        if context is not None and parts.scheme == "amqps":
            parameters.ssl_options = pika.SSLOptions(context, parts.hostname)
        return parameters


def describe_broker(parameters: pika.connection.Parameters) -> str:
    """Host, port and vhost, for messages."""
    return f"{parameters.host}:{parameters.port} vhost {parameters.virtual_host}"


class RabbitMqConnection:
    """An open connection to the first broker that answers. A context manager that closes it.

    `answer_seconds` is how long to wait for each answer; by default as long as the driver waits.
    All brokers together have the time for one connection. Raises `ConfigError` or `QueueError` if
    none can be connected to.
    """

    # A subclass replaces it to see messages in another form.
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
        # A transient one if any is: that broker may come back.
        passing = [error for error in refusals if not isinstance(error, ConfigError)]
        raise (passing or refusals)[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker accepts no messages now (memory, disk); None if it does."""
        return self._blocked

    @property
    def loss(self) -> QueueError | None:
        """What ended the connection; None while it is open."""
        return self._loss

    @property
    def frame_bytes(self) -> int:
        """The length of the longest frame that the broker takes."""
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
        """Call `act` with pika's connection on the connection's thread; do not wait.

        Raises `QueueError` if the connection is lost.
        """
        with self._guard:
            if self._loss is not None:
                raise self._loss
            self._pika.ioloop.add_callback_threadsafe(lambda: act(self._pika))

    def call(self, act: Callable[[Any, "Future[Any]"], None]) -> Any:
        """Call `act` on the connection's thread, and return the result that it sets on its future.

        Raises `QueueError` if the connection is lost, `UnansweredError` if no answer comes in time.
        """
        future: Future[Any] = Future()
        with self._guard:
            self._waiting.add(future)
        try:
            self.run(lambda connection: _act_or_fail(act, connection, future))
            return future.result(self._answer_seconds)
        except TimeoutError:
            raise self.silence(self._answer_seconds) from None
        finally:
            with self._guard:
                self._waiting.discard(future)

    def on_change(self, tell: Callable[[], None]) -> None:
        """Call `tell` on the connection's thread when it is lost, blocked or unblocked."""
        self._listeners.append(tell)

    def forget(self, tell: Callable[[], None]) -> None:
        """Stop calling `tell`."""
        with suppress(ValueError):
            self._listeners.remove(tell)

    def silence(self, seconds: float, done: str = "answered") -> UnansweredError:
        """The error of a broker that has not `done` something in this time.

        After it, `close` does not wait for the broker.
        """
        self._is_silent = True
        return UnansweredError(
            f"RabbitMQ at {self._name} has not {done} for {seconds:.0f} s",
            advice=(
                "check whether it, or a proxy in front of it, is stuck, or raise "
                "timeouts.silence_seconds"
            ),
            transient=True,
        )

    def close(self) -> None:
        """Close the connection. Unconfirmed messages stay unconfirmed."""
        if not self._is_silent:
            with suppress(QueueError):
                self.run(lambda connection: connection.close() if connection.is_open else None)
            self._thread.join(self._close_seconds)
        if self._thread.is_alive():
            with suppress(QueueError):
                self.run(_hang_up)
            self._thread.join(self._close_seconds)

    def _open(self, parameters: pika.connection.Parameters) -> None:
        self._name = describe_broker(parameters)
        self._guard = threading.RLock()
        opened: Future[None] = Future()
        self._waiting: set[Future[Any]] = {opened}
        self._listeners: list[Callable[[], None]] = []
        self._blocked: str | None = None
        self._loss: QueueError | None = None
        try:
            self._pika = self._pika_connection(
                parameters,
                on_open_callback=lambda _: opened.set_result(None),
                on_open_error_callback=lambda _, error: self._fail(opened, error),
                on_close_callback=lambda _, error: self._lose(error),
            )
        except OSError as error:
            # It opens a poller and a pair of sockets.
            raise connect_error(self._name, error) from error
        self._pika.add_on_connection_blocked_callback(self._block)
        self._pika.add_on_connection_unblocked_callback(self._unblock)
        self._thread = threading.Thread(target=self._drive, name="rabbitmq", daemon=True)
        self._thread.start()
        try:
            opened.result()
        except DuesweepError:
            # Otherwise it would use the next broker's connection instead of its own.
            self._thread.join()
            raise

    def _drive(self) -> None:
        try:
            self._pika.ioloop.start()
        except BaseException as error:  # noqa: BLE001 - each caller that waits for an answer gets this one
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
        self._blocked = f"RabbitMQ at {self._name} accepts no messages now: {frame.method.reason}"
        self._tell()

    def _unblock(self, _: object, __: object) -> None:
        self._blocked = None
        self._tell()

    def _tell(self) -> None:
        for tell in list(self._listeners):
            tell()


def _act_or_fail(
    act: Callable[[Any, "Future[Any]"], None], connection: Any, future: "Future[Any]"
) -> None:
    try:
        act(connection, future)
    except (pika.exceptions.AMQPError, ValueError, TypeError) as error:
        if not future.done():
            future.set_exception(QueueError(str(error) or type(error).__name__, transient=True))


def _hang_up(connection: Any) -> None:
    """Drop a connection whose broker does not answer to its close: a broker without memory reads
    nothing. A TCP reset keeps the broker from reading messages later that count as unsent here.
    """
    transport = connection._transport  # noqa: SLF001 - pika waits for the broker's answer for ever
    if transport is not None:
        with suppress(OSError):
            transport._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)  # noqa: SLF001
        transport.abort()


class Channel:
    """A channel for questions. If the broker refuses a question it closes the channel, and the
    next question opens another.
    """

    def __init__(self, connection: RabbitMqConnection) -> None:
        self._connection = connection
        self._pika: Any = None
        self._answer: Future[Any] = Future()

    def ask(self, question: str, *values: object, **options: object) -> Any:
        """Call a method of pika's channel, and return the method of the broker's answer.

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
            getattr(channel, question)(*values, callback=set_answer, **options)

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
