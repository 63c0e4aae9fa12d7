"""Receives in two steps: peeks until a message waits, then receives until none is left."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from queue import SimpleQueue
from typing import TYPE_CHECKING

import structlog

from duesweep.core.errors import DuesweepError
from duesweep.queues.operations.options import ReceiverOptions
from duesweep.queues.operations.session import ReusableSession, open_session
from duesweep.queues.operations.worker import (
    Handle,
    ReceiveFaults,
    ReceiveRound,
    ReceiveRoute,
    Worker,
)

if TYPE_CHECKING:
    from duesweep.queues.operations.base import Transport


_log = structlog.get_logger(__name__)


class Receiver:
    """Passes the messages of one queue to a function, several at once, each in a transaction.

    If the function raises, its message is back in its place and is received again. So a function
    has to send a message elsewhere if it can never handle it. As in the transports, poison messages
    go to the error queue unchanged, and delayed messages for other queues go on to their
    destination.
    """

    def __init__(
        self,
        transport: "Transport",
        address: str,
        error_queue: str,
        options: ReceiverOptions | None = None,
    ) -> None:
        self._transport = transport
        self._address = address
        self._error_queue = error_queue
        self._options = options or ReceiverOptions()
        for caution in self._options.cautions():
            _log.warning("receiver_caution", queue=address, caution=caution)

    def run(self, handle: Handle, stop: threading.Event) -> None:
        """Receive until `stop` is set and the running handlers have ended.

        Raises a `MessageError` where one of the two queues is not a queue table, and every lasting
        error. Transient errors are logged, and tried again after the peek delay.
        """
        self._prepare()
        faults = ReceiveFaults(self._address)
        route = ReceiveRoute(
            self._transport, self._address, self._error_queue, handle, self._options
        )
        with ExitStack() as stack:
            peeker = stack.enter_context(closing(ReusableSession(self._transport)))
            free: SimpleQueue[Worker] = SimpleQueue()
            for _ in range(self._options.concurrency):
                free.put(stack.enter_context(closing(Worker(route, faults))))
            # Entered last and left first: its threads end before their sessions are closed.
            pool = stack.enter_context(ThreadPoolExecutor(self._options.concurrency))
            while not stop.is_set() and faults.lasting is None:
                waiting = self._peek(peeker, faults)
                if waiting:
                    _receive(waiting, pool, free, stop)
                # Wait after a failure too: a lasting fault would be tried again without a pause.
                if faults.take() or not waiting:
                    stop.wait(self._options.peek_delay.total_seconds())
        if faults.lasting is not None:
            raise faults.lasting

    def _prepare(self) -> None:
        with open_session(self._transport) as session:
            for address in (self._address, self._error_queue):
                session.queue(address).check()
            if self._options.purge_on_startup:
                purged = session.queue(self._address).purge()
                _log.info("purged_on_startup", queue=self._address, messages=purged)

    def _peek(self, peeker: ReusableSession, faults: ReceiveFaults) -> int:
        try:
            return peeker.get().queue(self._address).peek(self._options.peek_batch)
        except DuesweepError as error:
            peeker.close()
            faults.report(error)
            return 0


def _receive(
    waiting: int, pool: ThreadPoolExecutor, free: SimpleQueue[Worker], stop: threading.Event
) -> None:
    """Receive as often as messages wait, each on a free thread, until one finds no message."""
    current, receives = ReceiveRound(), 0

    def receive_one(worker: Worker) -> None:
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
