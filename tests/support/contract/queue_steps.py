"""The steps of the tests of queue tables."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from duesweep.core.errors import MessageError
from duesweep.core.message import Message
from duesweep.queues.base import QueueSession
from duesweep.stores.base import TaskSession
from duesweep_testing.builders import delayed_row, message
from support.endpoint import Endpoint

# What the sessions of these tests wait for locks, instead of seconds.
LOCK_WAIT_SECONDS = 0.3


@contextmanager
def batch(
    endpoint: Endpoint[Any], dsn: str | None = None
) -> Iterator[tuple[TaskSession, QueueSession]]:
    """A store's and a queue's session, on `dsn` if given, with a transaction under way."""
    context = endpoint.context(**{"store__dsn": dsn} if dsn else {})
    with (
        context.store.open_task() as store,
        context.queue.open(store) as queue,
        store.transaction(),
    ):
        yield store, queue


def deliver(
    endpoint: Endpoint[Any], *messages: Message, address: str = "Billing"
) -> dict[str, MessageError]:
    """Deliver in a batch of its own. Returns the refused messages."""
    with batch(endpoint) as (_, queue):
        return queue.deliver(queue.resolve(address), messages)


def lying_in(endpoint: Endpoint[Any], address: str = "Billing") -> list[tuple[str, bytes | None]]:
    """Headers and bodies of what lies in a queue."""
    return [(row.headers, row.body) for row in endpoint.queue_rows(address)]


def expected(*messages: Message) -> list[tuple[str, bytes | None]]:
    """Headers and bodies of these messages as they are to be delivered."""
    return [(m.headers_text, m.body) for m in messages]


def with_bodies(*bodies: bytes) -> list[Message]:
    """A message for each of these bodies."""
    return [message(delayed_row(body=body)) for body in bodies]
