"""Receives messages of a queue table in two steps: peeks until a message waits, then receives until
none is left.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from uuid import uuid4

from duesweep.core import logs
from duesweep.core.errors import (
    ConfigError,
    DuesweepError,
    MessageError,
    RefusedMessageError,
    RefusedStatementError,
    StoreError,
)
from duesweep.core.headers import (
    FORWARD_DESTINATION,
    Headers,
    remove_forward_destination,
    write_json,
)
from duesweep.core.message import fault_headers
from duesweep_transport.tables import QueueTable, Transport, TransportSession
from duesweep_transport.values import ReceivedMessage

# Messages that it sends on the session are sent in the transaction of the received message.
Handle = Callable[[ReceivedMessage, TransportSession], None]

SHORTEST_DELAY = timedelta(milliseconds=100)
LONGEST_DELAY = timedelta(seconds=10)
# As in the transports: enough messages for all threads.
_PEEKED_PER_THREAD = 10
_LEAST_PEEKED = 100


def _default_concurrency() -> int:
    return max(2, os.cpu_count() or 0)


@dataclass(frozen=True, slots=True)
class ReceiverOptions:
    """The transports' `QueuePeekerOptions` and concurrency limit, with their defaults.

    `peek_batch_size` None: ten for each thread, at least 100. `purge_on_startup`: remove all
    messages that are not locked, before any is received. Raises `ConfigError` for values that
    the transports refuse: a delay, a batch size or a concurrency of 0 or less.
    """

    peek_delay: timedelta = timedelta(seconds=1)
    peek_batch_size: int | None = None
    concurrency: int = field(default_factory=_default_concurrency)
    purge_on_startup: bool = False

    def __post_init__(self) -> None:
        if self.peek_delay <= timedelta():
            raise ConfigError(
                f"A peek delay of {_seconds(self.peek_delay)} is too short",
                advice="give 100 ms to 10 s",
            )
        if self.peek_batch_size is not None and self.peek_batch_size < 1:
            raise ConfigError(
                f"A peek batch size of {self.peek_batch_size} finds nothing",
                advice="give 1 or more",
            )
        if self.concurrency < 1:
            raise ConfigError(
                f"A concurrency limit of {self.concurrency} handles nothing",
                advice="give 1 or more",
            )

    @property
    def peek_batch(self) -> int:
        """How many messages one peek may find."""
        if self.peek_batch_size is not None:
            return self.peek_batch_size
        return max(_LEAST_PEEKED, _PEEKED_PER_THREAD * self.concurrency)

    def cautions(self) -> Sequence[str]:
        """Warnings about options that are not recommended."""
        if self.peek_delay < SHORTEST_DELAY:
            why = "it loads the database, and messages arrive hardly sooner"
        elif self.peek_delay > LONGEST_DELAY:
            why = "messages may back up in the queue"
        else:
            return []
        return [
            f"A peek delay of {_seconds(self.peek_delay)} is not recommended: {why}; 100 ms to "
            "10 s are recommended"
        ]

    def caution_about(self, time_to_be_received: timedelta | None) -> str | None:
        """A warning if messages with this time to be received may expire unseen; else None."""
        if time_to_be_received is None or self.peek_delay <= time_to_be_received:
            return None
        return (
            f"The peek delay of {_seconds(self.peek_delay)} is longer than the time to be received "
            f"of {_seconds(time_to_be_received)} that messages here have: they may expire before "
            "they are received; make the delay shorter"
        )


class Receiver:
    """Passes the messages of one queue to a function, several at once, each in a transaction.

    If the function raises, its message is back in its place and is received again. So a function
    has to send a message elsewhere if it can never handle it. As in the transports, poison messages
    go to the error queue unchanged, and delayed messages for other queues move to their
    destination.
    """

    def __init__(
        self,
        transport: Transport,
        address: str,
        error_queue: str,
        options: ReceiverOptions | None = None,
    ) -> None:
        self.transport = transport
        self.address = address
        self.error_queue = error_queue
        self.options = options or ReceiverOptions()
        for caution in self.options.cautions():
            logs.warning("receiver_caution", queue=address, caution=caution)

    def run(self, handle: Handle, stop: threading.Event) -> None:
        """Receive until `stop` is set and the running handlers have ended.

        Raises a `MessageError` where one of the two queues is not a queue table, and every lasting
        error. Transient errors are logged, and tried again after the peek delay.
        """
        self._prepare()
        faults = _Faults(self.address)
        with ExitStack() as stack:
            peeker = stack.enter_context(closing(_Worker(self, handle, faults)))
            free: SimpleQueue[_Worker] = SimpleQueue()
            for _ in range(self.options.concurrency):
                free.put(stack.enter_context(closing(_Worker(self, handle, faults))))
            # Entered last and left first: its threads end before their sessions are closed.
            pool = stack.enter_context(ThreadPoolExecutor(self.options.concurrency))
            while not stop.is_set() and faults.lasting is None:
                waiting = peeker.peek()
                if waiting:
                    _receive(waiting, pool, free, stop)
                # Wait after a failure too: a lasting fault would be tried again without a pause.
                if faults.take() or not waiting:
                    stop.wait(self.options.peek_delay.total_seconds())
        if faults.lasting is not None:
            raise faults.lasting

    def _prepare(self) -> None:
        with self.transport.connect() as session:
            for address in (self.address, self.error_queue):
                session.queue(address).check()
            if self.options.purge_on_startup:
                purged = session.queue(self.address).purge()
                logs.info("purged_on_startup", queue=self.address, messages=purged)


class _HandlerFailedError(Exception):
    """The handler raised its `__cause__`. The message is back in the queue."""

    def __init__(self, message: ReceivedMessage) -> None:
        super().__init__(f"Handling the message with id {message.id} failed")
        self.message = message


class _Round:
    """The receives after one peek."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._tried = 0
        self.is_over = False

    def note_receive(self) -> None:
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
class _Faults:
    """The failures in the threads of a receiver. `lasting` is an error that will not pass."""

    queue: str
    lasting: Exception | None = None
    _is_fresh: threading.Event = field(default_factory=threading.Event)
    _has_cautioned: threading.Event = field(default_factory=threading.Event)

    def report(self, error: Exception) -> None:
        """Log an error that may pass; keep any other as `lasting`."""
        if isinstance(error, _HandlerFailedError):
            message_id, cause = str(error.message.id), repr(error.__cause__)
            logs.warning("handler_failed", queue=self.queue, id=message_id, error=cause)
        elif isinstance(error, StoreError) and error.transient:
            logs.warning("receive_failed", queue=self.queue, error=str(error))
        else:
            self.lasting = error
        self._is_fresh.set()

    def caution(self, caution: str) -> None:
        """Log a caution once."""
        if not self._has_cautioned.is_set():
            self._has_cautioned.set()
            logs.warning("receiver_caution", queue=self.queue, caution=caution)

    def take(self) -> bool:
        """Whether anything has failed since the last call."""
        was_fresh = self._is_fresh.is_set()
        self._is_fresh.clear()
        return was_fresh


class _Worker:
    """The work of one thread, on a session for many messages: it peeks, or receives one message and
    handles, forwards or rejects it. After a failure the next use opens a new session.
    """

    def __init__(self, receiver: "Receiver", handle: Handle, faults: _Faults) -> None:
        self._receiver = receiver
        self._address = receiver.address
        self._error_queue = receiver.error_queue
        self._call = handle
        self._faults = faults
        self._stack = ExitStack()
        self._session: TransportSession | None = None

    def close(self) -> None:
        self._session = None
        self._stack.close()

    def peek(self) -> int:
        """How many messages wait; 0 after a failure."""
        try:
            queue = self._open().queue(self._address)
            return queue.peek(self._receiver.options.peek_batch)
        except DuesweepError as error:
            self.close()
            self._faults.report(error)
            return 0

    def receive_one(self, current: _Round) -> None:
        """Receive and handle one message, if there is one. Never raises."""
        try:
            session = self._open()
            with session.queue(self._address).receive() as message:
                if message is None:
                    current.end()
                else:
                    current.note_receive()
                    self._handle(message, session)
        except Exception as error:  # noqa: BLE001 - the receiver raises it, in its own thread
            # The message is back, and would be the next to be received: not in this round.
            self._faults.report(error)
            current.end()
            self.close()

    def _open(self) -> TransportSession:
        if self._session is None:
            self._session = self._stack.enter_context(self._receiver.transport.connect())
        return self._session

    def _handle(self, message: ReceivedMessage, session: TransportSession) -> None:
        caution = self._receiver.options.caution_about(message.time_to_be_received)
        if caution is not None:
            self._faults.caution(caution)
        if isinstance(message.headers, MessageError):
            logs.error("poison", queue=self._address, id=str(message.id), to=self._error_queue)
            queue = session.queue(self._error_queue)
            queue.append(message.id, message.headers_text, message.body)
        elif not self._forward(message, message.headers, session):
            self._call_handler(message, session)

    def _call_handler(self, message: ReceivedMessage, session: TransportSession) -> None:
        try:
            self._call(message, session)
        except Exception as error:
            raise _HandlerFailedError(message) from error

    def _forward(
        self, message: ReceivedMessage, headers: Headers, session: TransportSession
    ) -> bool:
        """Forward a delayed message for another queue. Returns whether this was one."""
        destination = message.forward_destination
        if destination is None:
            return False
        try:
            queue = session.queue(destination)
            if queue.destination == session.queue(self._address).destination:
                return False
            queue.check()
            _pass_on(message, queue, session)
        except MessageError as error:
            self._give_up(message, headers, error, session)
        return True

    def _give_up(
        self,
        message: ReceivedMessage,
        headers: Headers,
        error: MessageError,
        session: TransportSession,
    ) -> None:
        logs.error("forward_failed", queue=self._address, id=str(message.id), error=str(error))
        destination = message.forward_destination or self._address
        own = {n: value for n, value in headers.items() if n != FORWARD_DESTINATION}
        faults = fault_headers(error, destination, datetime.now(UTC))
        queue = session.queue(self._error_queue)
        queue.append(uuid4(), write_json({**own, **faults}), message.body)


def _pass_on(message: ReceivedMessage, queue: QueueTable, session: TransportSession) -> None:
    """Append the message to its queue. Raises `RefusedMessageError` if its row is refused: a fault
    that lasts would end the receiver at each start, and all messages behind this one would wait.
    """
    text = remove_forward_destination(message.headers_text)
    try:
        # A savepoint: the transaction continues without the refused row.
        with session.transaction():
            queue.append(uuid4(), text, message.body)
    except RefusedStatementError:
        raise
    except StoreError as error:
        if error.transient:
            raise
        raise RefusedMessageError(error.text, advice=error.advice) from error


def _receive(
    waiting: int, pool: ThreadPoolExecutor, free: SimpleQueue[_Worker], stop: threading.Event
) -> None:
    """Receive as often as messages wait, each on a free thread, until one finds no message."""
    current, receives = _Round(), 0

    def receive_one(worker: _Worker) -> None:
        try:
            worker.receive_one(current)
        finally:
            free.put(worker)

    while receives < waiting:
        worker = free.get()
        if stop.is_set() or current.is_over:
            free.put(worker)
            break
        pool.submit(receive_one, worker)
        receives += 1
    current.wait(receives)


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():g} s"
