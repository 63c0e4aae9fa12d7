"""What the tests of RabbitMQ share."""

from collections.abc import Iterator

import pytest
from broker import Broker
from broker_proxy import Proxy, proxied
from broker_server import BrokerServer
from contract.rabbitmq.commands import run
from contract.rabbitmq.first_ladder import create_first_ladder
from contract.rabbitmq.migrations import counts
from contract.rabbitmq.sessions import connections
from waiting import until

from duesweep.queues.rabbitmq.migration.plan import POISON_QUEUE


@pytest.fixture(autouse=True)
def _no_connection_is_left() -> Iterator[None]:
    before = connections()
    yield
    until(lambda: connections() <= before, 10)


@pytest.fixture
def billing(broker: Broker) -> Broker:
    """With endpoint Billing, on a classic queue: those are made faster."""
    broker.create("Billing", x_queue_type="classic")
    return broker


@pytest.fixture
def proxy(broker: Broker) -> Iterator[Proxy]:
    """In front of the broker."""
    with proxied(broker.server.amqp) as proxy:
        yield proxy


@pytest.fixture(scope="package")
def shared(broker_server: "BrokerServer") -> Iterator[Broker]:
    """A vhost with both ladders and endpoint Billing; `_empty_ladders` empties it after a test."""
    broker = Broker(broker_server, "migrated")
    create_first_ladder(broker)
    broker.channel.confirm_delivery()
    assert run(broker, "endpoint", "create", "Billing") == 0
    yield broker
    broker.close()


@pytest.fixture
def _empty_ladders(shared: Broker) -> Iterator[None]:
    yield
    for name in counts(shared):
        shared.channel.queue_purge(name)
    shared.channel.queue_delete(POISON_QUEUE)
