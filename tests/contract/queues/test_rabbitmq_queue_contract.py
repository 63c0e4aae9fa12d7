"""The contract of a broker, kept by RabbitMQ: it takes back nothing, and looks into no message."""

from collections.abc import Iterator

import pytest

from duesweep.core.headers import write_json
from duesweep.drivers.rabbitmq.connection import Brokers, Channel, RabbitMqConnection
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.topology import Style
from duesweep_testing.builders import ENDPOINT
from duesweep_testing.contract import ArrivedMessages, BrokerContract
from duesweep_testing.memory import MemoryStore
from support.rabbitmq.broker import Broker
from support.rabbitmq.broker_server import BrokerServer
from support.rabbitmq.sessions import queue_of


class RabbitMqUnderTest:
    """Endpoints on a broker, made again."""

    has_own_transaction = True
    has_null_bodies = False

    def __init__(self, broker: Broker, style: Style) -> None:
        self.broker = broker
        self.queue = queue_of(broker.url, style=style)
        self.store = MemoryStore()
        self._arrived: dict[str, ArrivedMessages] = {}
        for name in ("Billing", ENDPOINT):
            self.create(name)

    def create(self, address: str) -> None:
        self._arrived[address] = []
        self.broker.create(address, x_queue_type="classic")

    def drop(self, address: str) -> None:
        del self._arrived[address]
        self.broker.delete(address)

    def arrived(self, address: str) -> ArrivedMessages:
        for _, properties, body in self.broker.take(address):
            headers = {n: v for n, v in properties.headers.items() if not n.startswith("x-")}
            self._arrived[address].append((write_json(headers), body))
        return self._arrived[address]

    def drop_all(self) -> None:
        for address in list(self._arrived):
            self.drop(address)


@pytest.fixture(scope="module")
def broker_with_ladder(broker_server: BrokerServer) -> Iterator[Broker]:
    """A vhost with a delay ladder, which takes a second to make."""
    broker = Broker(broker_server, "contract")
    with RabbitMqConnection(Brokers((broker.url,), "queues.default")) as connection:
        topology.create(Channel(connection), topology.ladder())
    yield broker
    broker.close()


class TestRabbitMq(BrokerContract):
    @pytest.fixture(params=Style)
    def subject(
        self, broker_with_ladder: Broker, request: pytest.FixtureRequest
    ) -> Iterator[RabbitMqUnderTest]:
        subject = RabbitMqUnderTest(broker_with_ladder, request.param)
        yield subject
        subject.drop_all()
