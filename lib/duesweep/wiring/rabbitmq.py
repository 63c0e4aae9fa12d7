"""Wiring of RabbitMQ: endpoints on a broker as queues."""

from collections.abc import Sequence

from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.queues.rabbitmq.session import RabbitMqQueue
from duesweep.queues.rabbitmq.topology import RabbitMqSetup, Style
from duesweep.wiring.dialects import QueueConnection, timeouts_of


def queue(connection: QueueConnection) -> RabbitMqQueue:
    """The endpoints on a connection's brokers."""
    section = connection.section
    return RabbitMqQueue(
        brokers(connection),
        Style(section.topology),
        connection.config.store.endpoint,
        section.max_in_flight,
        needs_ladder=connection.needs_ladder,
        is_punctual=bool(connection.config.sweep.look_ahead_seconds),
        holds_own_queue=not connection.is_routed and connection.config.store.kind != "msmq",
    )


def brokers(connection: QueueConnection) -> Brokers:
    """A connection's brokers."""
    section = connection.section
    return Brokers(
        section.urls,
        connection.setting,
        section.ca_file,
        section.client_certificate,
        section.client_key,
        timeouts_of(connection.config),
    )


def queue_tables(connection: QueueConnection, addresses: Sequence[str | None]) -> tuple[str, ...]:
    """The endpoints' names."""
    own = connection.config.store.endpoint
    return tuple(own if address is None else address for address in addresses)


def queue_step(connection: QueueConnection, queues: tuple[str, ...]) -> RabbitMqSetup:
    """The step that creates these endpoints and the delay ladder."""
    return RabbitMqSetup(
        brokers(connection), Style(connection.section.topology), queues, f"{connection.setting}.url"
    )
