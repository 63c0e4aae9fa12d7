"""One thread of a receiver: receives one message, and handles, forwards or rejects it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import structlog

from duesweep.core.errors import MessageError, StoreError
from duesweep.core.headers import (
    FORWARD_DESTINATION,
    Headers,
    remove_forward_destination,
    write_json,
)
from duesweep.core.message import ReceivedMessage, fault_headers
from duesweep.queues.operations.options import ReceiverOptions
from duesweep.queues.operations.session import ReusableSession, TransportSession

if TYPE_CHECKING:
    from duesweep.queues.operations.base import Transport


# Messages that it sends on the session are sent in the transaction of the received message.
Handle = Callable[[ReceivedMessage, TransportSession], None]

_log = structlog.get_logger(__name__)


class HandlerFailedError(Exception):
    """The handler raised its `__cause__`. The message is back in the queue."""

    def __init__(self, message: ReceivedMessage) -> None:
        super().__init__(f"Handling the message with id {message.id} failed")
        self.message = message


@dataclass(frozen=True, slots=True)
class ReceiveRoute:
    """The queue to receive from, the handler, and the queue for messages that cannot be read."""

    transport: "Transport"
    address: str
    error_queue: str
    handle: Handle
    options: ReceiverOptions


class ReceiveRound:
    """The receives after one peek."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._tried = 0
        self.is_over = False

    def note_receive(self) -> None:
        """Note that a receive has found a message."""
        with self._condition:
            self._tried += 1
            self._condition.notify()

    def end(self) -> None:
        """End the round: a receive has found no message, or failed."""
        with self._condition:
            self.is_over = True
            self._condition.notify()

    def wait(self, receives: int) -> None:
        """Wait until `receives` receives have found a message, or the round has ended."""
        with self._condition:
            self._condition.wait_for(lambda: self.is_over or self._tried >= receives)


@dataclass(slots=True)
class ReceiveFaults:
    """The failures in the threads of a receiver. `lasting` is an error that will not pass."""

    queue: str
    lasting: Exception | None = None
    _is_fresh: threading.Event = field(default_factory=threading.Event)
    _has_cautioned: threading.Event = field(default_factory=threading.Event)

    def report(self, error: Exception) -> None:
        """Log an error that may pass; keep any other as `lasting`."""
        if isinstance(error, HandlerFailedError):
            message_id, cause = str(error.message.id), repr(error.__cause__)
            _log.warning("handler_failed", queue=self.queue, id=message_id, error=cause)
        elif isinstance(error, StoreError) and error.transient:
            _log.warning("receive_failed", queue=self.queue, error=str(error))
        else:
            self.lasting = error
        self._is_fresh.set()

    def caution(self, caution: str) -> None:
        """Log a caution once."""
        if not self._has_cautioned.is_set():
            self._has_cautioned.set()
            _log.warning("receiver_caution", queue=self.queue, caution=caution)

    def take(self) -> bool:
        """Whether anything has failed since the last call."""
        was_fresh = self._is_fresh.is_set()
        self._is_fresh.clear()
        return was_fresh


class Worker:
    """The work of one thread, on one session for many messages."""

    def __init__(self, route: ReceiveRoute, faults: ReceiveFaults) -> None:
        self._route = route
        self._faults = faults
        self._session = ReusableSession(route.transport)

    def close(self) -> None:
        """Close the session."""
        self._session.close()

    def receive_one(self, current: ReceiveRound) -> None:
        """Receive and handle one message, if there is one. Never raises."""
        try:
            session = self._session.get()
            with session.queue(self._route.address).receive() as message:
                if message is None:
                    current.end()
                else:
                    current.note_receive()
                    self._handle(message, session)
        except Exception as error:  # noqa: BLE001 - the receiver raises it, in its own thread
            # The message is back, and would be the next to be received: not in this round.
            self._faults.report(error)
            current.end()
            self._session.close()

    def _handle(self, message: ReceivedMessage, session: TransportSession) -> None:
        caution = self._route.options.caution_about(message.time_to_be_received)
        if caution is not None:
            self._faults.caution(caution)
        if isinstance(message.headers, MessageError):
            _log.error(
                "poison", queue=self._route.address, id=str(message.id), to=self._error_queue
            )
            queue = session.queue(self._error_queue)
            queue.append(message.id, message.headers_text, message.body)
        elif not self._forward(message, message.headers, session):
            self._call_handler(message, session)

    def _call_handler(self, message: ReceivedMessage, session: TransportSession) -> None:
        try:
            self._route.handle(message, session)
        except Exception as error:
            raise HandlerFailedError(message) from error

    def _forward(
        self, message: ReceivedMessage, headers: Headers, session: TransportSession
    ) -> bool:
        """Forward a delayed message for another queue. Returns whether this was one."""
        destination = message.forward_destination
        if destination is None:
            return False
        try:
            queue = session.queue(destination)
            if queue.destination == session.queue(self._route.address).destination:
                return False
            queue.check()
        except MessageError as error:
            self._give_up(message, headers, error, session)
            return True
        text = remove_forward_destination(message.headers_text)
        queue.append(uuid4(), text, message.body)
        return True

    def _give_up(
        self,
        message: ReceivedMessage,
        headers: Headers,
        error: MessageError,
        session: TransportSession,
    ) -> None:
        _log.error(
            "forward_failed", queue=self._route.address, id=str(message.id), error=str(error)
        )
        destination = message.forward_destination or self._route.address
        own = {n: value for n, value in headers.items() if n != FORWARD_DESTINATION}
        faults = fault_headers(error, destination, datetime.now(UTC))
        queue = session.queue(self._error_queue)
        queue.append(uuid4(), write_json({**own, **faults}), message.body)

    @property
    def _error_queue(self) -> str:
        return self._route.error_queue
