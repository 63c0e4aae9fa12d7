"""What the tests of sweeps to RabbitMQ share."""

from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.queues.rabbitmq.topology import RabbitMqSetup, Style
from support.endpoint import Endpoint
from support.rabbitmq.broker import Broker


def settings(broker: Broker, **more: object) -> dict[str, object]:
    """The configuration of an endpoint whose queues are on the broker."""
    return {"queues__default__kind": "rabbitmq", "queues__default__url": broker.url, **more}


def set_up(endpoint: Endpoint, broker: Broker, *names: str) -> None:
    """The endpoint's tables, and the delay ladder with these endpoints on the broker."""
    endpoint.set_up(**settings(broker))
    brokers = Brokers((broker.url,), "queues.default")
    own = (endpoint.name, *names)
    RabbitMqSetup(brokers, Style.CONVENTIONAL, own, "url").install(rebind=False)
