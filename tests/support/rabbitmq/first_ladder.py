"""The delay ladder of the transport's first versions, with messages in it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pika

from duesweep.core.policy import delay_level
from duesweep.drivers.rabbitmq.connection import Brokers, Channel, RabbitMqConnection
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.topology import BrokerQueue, Topology
from support.rabbitmq.broker import Broker

TIME_SENT = "NServiceBus.TimeSent"


def first_name(level: int) -> str:
    return topology.level_name(level, topology.FIRST_PREFIX)


def create_first_ladder(broker: Broker) -> None:
    """As the second one, under other names and of classic queues."""
    second = topology.ladder()
    first = Topology(
        tuple(replace(one, name=_first(one.name)) for one in second.exchanges),
        tuple(BrokerQueue(_first(one.name), _classic(one.arguments)) for one in second.queues),
        tuple(
            replace(one, source=_first(one.source), destination=_first(one.destination))
            for one in second.bindings
        ),
    )
    with RabbitMqConnection(Brokers((broker.url,), "queues.default")) as connection:
        topology.create(Channel(connection), first)


def time_sent(at: datetime) -> str:
    """As NServiceBus writes it."""
    return f"{at:%Y-%m-%d %H:%M:%S:%f} Z"


def delay(
    broker: Broker,
    destination: str,
    seconds: int = 100_000,
    headers: Mapping[str, Any] | None = None,
    **properties: Any,
) -> None:
    """Send a message into it, as if ten seconds ago; its body is its message id. Headers that are
    `...` are left out.
    """
    sent = time_sent(datetime.now(UTC) - timedelta(seconds=10))
    named = {TIME_SENT: sent, topology.DELAY_HEADER: seconds, **(headers or {})}
    kept = {name: value for name, value in named.items() if value is not ...}
    broker.channel.basic_publish(
        first_name(delay_level(seconds)),
        topology.routing_key(seconds, destination),
        str(properties.get("message_id")).encode(),
        pika.BasicProperties(headers=kept, delivery_mode=2, **properties),
    )


def _first(name: str) -> str:
    return name.replace(topology.PREFIX, topology.FIRST_PREFIX)


def _classic(arguments: Mapping[str, str | int]) -> dict[str, str | int]:
    kept = {name: arguments[name] for name in ("x-message-ttl", "x-dead-letter-exchange")}
    return {
        name: _first(value) if isinstance(value, str) else value for name, value in kept.items()
    }
