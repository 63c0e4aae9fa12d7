"""Receiving in two modes: peek until something waits, then receive until nothing is found."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from queue import SimpleQueue

import structlog

from duesweep.errors import DuesweepError
from duesweep.queues.operations.base import Transport
from duesweep.queues.operations.options import ReceiverOptions
from duesweep.queues.operations.session import KeptSession, open_session
from duesweep.queues.operations.worker import (
    Handle,
    ReceiveFaults,
    ReceiveRound,
    ReceiveRoute,
    Worker,
)

_log = structlog.get_logger(__name__)


class Receiver:
    """Hands the messages of one queue to a function, several at once, each in a transaction.

    What the function raises puts its message back, in its place: a function that would always raise
    has to send the message elsewhere itself, or it is received for ever. Poison goes to the error
    queue as it is, and a delayed message that is somebody else's goes on to its destination, as in
    the transports.
    """

    def __init__(
        self,
        transport: Transport,
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
        """Receive until `stop` is set, and what is being handled then is done.

        Raises a `MessageError` where one of the two queues is none, and whatever does not pass;
        what passes is logged, and tried again after the peek delay.
        """
        self._check()
        faults = ReceiveFaults(self._address)
        route = ReceiveRoute(
            self._transport, self._address, self._error_queue, handle, self._options
        )
        with ExitStack() as stack:
            peeker = stack.enter_context(closing(KeptSession(self._transport)))
            free: SimpleQueue[Worker] = SimpleQueue()
            for _ in range(self._options.concurrency):
                free.put(stack.enter_context(closing(Worker(route, faults))))
            # Left first: its threads end before their sessions are closed.
            pool = stack.enter_context(ThreadPoolExecutor(self._options.concurrency))
            while not stop.is_set() and faults.lasting is None:
                waiting = self._peek(peeker, faults)
                if waiting:
                    _receive(waiting, pool, free, stop)
                # What fails at once is not to be tried again at once, and for ever.
                if faults.take() or not waiting:
                    stop.wait(self._options.peek_delay.total_seconds())
        if faults.lasting is not None:
            raise faults.lasting

    def _check(self) -> None:
        with open_session(self._transport) as session:
            for address in (self._address, self._error_queue):
                session.queue(address).check()

    def _peek(self, peeker: KeptSession, faults: ReceiveFaults) -> int:
        try:
            return peeker.get().queue(self._address).peek(self._options.peek_batch)
        except DuesweepError as error:
            peeker.close()
            faults.report(error)
            return 0


def _receive(
    waiting: int, pool: ThreadPoolExecutor, free: SimpleQueue[Worker], stop: threading.Event
) -> None:
    """Try as many receives as messages wait, each on a free thread, until one finds nothing."""
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
