"""The steps of these tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from duesweep.queues.operations import OutgoingMessage, QueueTable, ReceivedMessage
from duesweep_testing.builders import BODY

BILLING = "Billing"
HOUR = timedelta(hours=1)


class ReleasedError(Exception):
    """Ends a block badly."""


def message(number: int = 1, **more: timedelta) -> OutgoingMessage:
    """A message that says its number."""
    return OutgoingMessage({"n": str(number), "Slash": "a/b", "Null": None}, BODY, **more)


def fill(queue: QueueTable, count: int) -> QueueTable:
    """Create a queue with so many messages in it, numbered from 1."""
    queue.create()
    for number in range(1, count + 1):
        queue.send(message(number))
    return queue


def number_of(received: ReceivedMessage | None) -> int | None:
    """The number of a message that was received."""
    if received is None:
        return None
    assert not isinstance(received.headers, Exception)
    return int(received.headers["n"] or 0)


def receive_all(queue: QueueTable) -> Iterator[int | None]:
    """The numbers of all messages, in the order in which they are received."""
    while True:
        with queue.receive() as received:
            if received is None:
                return
            yield number_of(received)


@contextmanager
def held(queue: QueueTable) -> Iterator[int | None]:
    """The number of a message that is received meanwhile, and then released."""
    try:
        with queue.receive() as received:
            yield number_of(received)
            raise ReleasedError
    except ReleasedError:
        return
