"""Sessions and sweeps on the tests' broker."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from duesweep.core.message import Message
from duesweep.core.policy import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.queues.rabbitmq.session import RabbitMqQueue, RabbitMqQueueSession
from duesweep.queues.rabbitmq.topology import Style
from duesweep.stores.base import DriverSession
from duesweep_testing.builders import ENDPOINT, DelayedRow, delayed_row, message
from duesweep_testing.memory import MemoryStore
from support.dispatch_world import World
from support.rabbitmq.broker import Broker

# A broker's queues need none.
NO_STORE = cast(DriverSession, None)


def queue_of(
    *urls: str,
    style: Style = Style.CONVENTIONAL,
    max_in_flight: int = 2000,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> RabbitMqQueue:
    brokers = Brokers(urls, "queues.default", timeouts=timeouts)
    return RabbitMqQueue(brokers, style, ENDPOINT, max_in_flight)


@contextmanager
def session_of(queue: RabbitMqQueue) -> Iterator[RabbitMqQueueSession]:
    """A queue's session next to a store's."""
    with MemoryStore([]).open_task() as store, queue.open(store) as session:
        yield session


@contextmanager
def queue_session(
    broker: Broker, style: Style = Style.CONVENTIONAL
) -> Iterator[RabbitMqQueueSession]:
    with session_of(queue_of(broker.url, style=style)) as session:
        yield session


def world_on(queue: RabbitMqQueue, *rows: DelayedRow, **job: Any) -> World:
    """A store in memory whose messages go to the broker."""
    queue_: Any = queue
    return World(MemoryStore(rows), queue_, job=job)


def numbered(count: int, destination: str = "Billing", size: int = 0) -> list[DelayedRow]:
    """Rows with different bodies of at least `size` bytes."""
    return [
        delayed_row(destination, body=f"{n:08}".encode().ljust(size, b".")) for n in range(count)
    ]


def sent(count: int, destination: str = "Billing", size: int = 0) -> list[Message]:
    """Messages with different bodies of at least `size` bytes."""
    return [message(row) for row in numbered(count, destination, size)]


def arrived(broker: Broker, queue: str, count: int) -> Counter[bytes]:
    """How often each body lies in a queue, which has at least `count` messages."""
    return Counter(body for _, _, body in broker.take_all(queue, count))


def bodies(messages: Sequence[Message | DelayedRow]) -> set[bytes]:
    return {one.body or b"" for one in messages}


def connections() -> set[threading.Thread]:
    """The threads that drive connections; one each."""
    return {thread for thread in threading.enumerate() if thread.name == "rabbitmq"}
