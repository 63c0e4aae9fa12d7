"""Sessions on the tests' broker."""

from collections.abc import Iterator
from contextlib import contextmanager

from broker import Broker

from duesweep.drivers.rabbitmq import Brokers
from duesweep.queues.rabbitmq.queue import RabbitMqQueue
from duesweep.queues.rabbitmq.session import RabbitMqQueueSession
from duesweep.queues.rabbitmq.topology import Style
from duesweep.testing.builders import ENDPOINT
from duesweep.testing.memory import MemoryStore


def queue_of(
    *urls: str, style: Style = Style.CONVENTIONAL, max_in_flight: int = 2000
) -> RabbitMqQueue:
    """Endpoints on these brokers."""
    return RabbitMqQueue(Brokers(urls, "queues.default"), style, ENDPOINT, max_in_flight)


@contextmanager
def queue_session(
    broker: Broker, style: Style = Style.CONVENTIONAL
) -> Iterator[RabbitMqQueueSession]:
    """A session beside a store's."""
    with (
        MemoryStore([]).open_task() as store,
        queue_of(broker.url, style=style).open(store) as session,
    ):
        yield session
