"""The steps of the receiver's tests."""

import threading
from collections.abc import Callable

from duesweep.queues.operations import (
    Handle,
    ReceivedMessage,
    Receiver,
    ReceiverOptions,
    TransportSession,
)
from support.memory_transport import CountedStop, MemoryTransport

ONE = ReceiverOptions(concurrency=1)


class Handler:
    """A handler that notes its messages; `then` may raise."""

    def __init__(self, then: Callable[[ReceivedMessage], None] = lambda _: None) -> None:
        self.handled: list[str] = []
        self._then = then

    def __call__(self, message: ReceivedMessage, session: TransportSession) -> None:
        assert isinstance(session, TransportSession)
        self.handled.append(message.headers_text)
        self._then(message)


def receive(
    transport: MemoryTransport,
    handle: Handle,
    options: ReceiverOptions = ONE,
    stop: threading.Event | None = None,
) -> threading.Event:
    stop = stop or CountedStop(1)
    Receiver(transport, "Billing", "error", options).run(handle, stop)
    assert transport.sessions == 0
    return stop


def texts(count: int) -> list[str]:
    return [f'{{"n":"{number}"}}' for number in range(count)]
