"""What the tests of RabbitMQ share."""

from collections.abc import Iterator

import pytest
from broker import Broker
from broker_proxy import Proxy, proxied
from contract.rabbitmq.sessions import connections
from waiting import until


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
