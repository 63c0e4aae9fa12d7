"""The delay ladder of the transport's first versions, messages in it, and its migration."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pika

from duesweep.core.policy import delay_level
from duesweep.drivers.rabbitmq.connection import Brokers, Channel, RabbitMqConnection
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.topology import BrokerQueue, Style, Topology
from duesweep_transport.migration import LevelReport, Migration
from support.rabbitmq.broker import Broker
from support.rabbitmq.commands import run

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


def counts(broker: Broker) -> dict[str, int]:
    """Messages by the queues of both ladders, and Billing's."""
    levels = [
        topology.level_name(level, prefix)
        for level in range(topology.LEVELS)
        for prefix in (topology.PREFIX, topology.FIRST_PREFIX)
    ]
    return {name: broker.count(name) for name in (*levels, "Billing")}


def migrate(broker: Broker, **settings: Any) -> tuple[int, dict[str, Any]]:
    ran = run(broker, "delays", "migrate", "--json", **settings)
    return ran.code, ran.document


class Onlooker:
    """Observes, and stops after this many batches."""

    def __init__(self, batches: int | None = None) -> None:
        self._left = batches

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        """As a migration takes it."""
        yield self.is_stopped
        yield self.tell

    def is_stopped(self) -> bool:
        return self._left is not None and self._left <= 0

    def tell(self, level: LevelReport) -> None:
        if self._left is not None and level.moved:
            self._left -= 1


def migration(broker: Broker, now: datetime | None = None, max_in_flight: int = 2000) -> Migration:
    """A migration on the broker, at a moment that stands still."""
    brokers = Brokers((broker.url,), "queues.default")
    at = now or datetime.now(UTC)
    return Migration(brokers, Style.CONVENTIONAL, "queues.default.url", max_in_flight, lambda: at)
