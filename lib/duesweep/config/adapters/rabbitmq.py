"""RabbitMQ: endpoints on a broker as queues, and their checks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from duesweep.config import Config
from duesweep.config.adapters import Needs, QueueConnection, timeouts_of
from duesweep.core.finding import Finding
from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.queues.rabbitmq.session import RabbitMqQueue
from duesweep.queues.rabbitmq.topology import RabbitMqSetup, Style, checked_name


class RabbitMqAdapter:
    """Queues are endpoints, by their names; a broker has no store. See `SqlAdapter`."""

    def queue(self, connection: QueueConnection) -> RabbitMqQueue:
        """The queues of a connection."""
        section = connection.section
        return RabbitMqQueue(
            brokers_of(connection),
            Style(section.topology),
            connection.config.store.endpoint,
            section.max_in_flight,
            needs_ladder=connection.needs_ladder,
            is_punctual=bool(connection.config.sweep.look_ahead_seconds),
            holds_own_queue=not connection.config.route and connection.config.store.kind != "msmq",
        )

    def queue_table(self, connection: QueueConnection, address: str | None) -> str:
        """The name of a queue; None: the own queue."""
        return checked_name(connection.config.store.endpoint if address is None else address)

    def setup_step(self, connection: QueueConnection, queues: Mapping[str, str]) -> RabbitMqSetup:
        """The step that creates these queues."""
        style = Style(connection.section.topology)
        return RabbitMqSetup(
            brokers_of(connection), style, tuple(queues), f"{connection.setting}.url"
        )

    def examine(
        self,
        config: Config,  # noqa: ARG002 - as for a database
        connection: QueueConnection | None,
        queues: Callable[[], Sequence[tuple[str, Any]]],
    ) -> Iterator[Finding]:
        """The doctor's findings on the broker."""
        # It loads a client of HTTP, which no sweep needs.
        from duesweep.queues.rabbitmq.checks import examine  # noqa: PLC0415

        assert connection is not None  # a store is in a database
        url = connection.section.management_url
        yield from examine(
            brokers_of(connection),
            queues(),
            Style(connection.section.topology),
            needs_ladder=connection.needs_ladder,
            management_url=url.get_secret_value() if url else None,
        )

    def needs(self, dsns: Sequence[str]) -> Needs:  # noqa: ARG002 - whatever they are
        """What executors have to load."""
        return Needs(["pika"])


ADAPTER = RabbitMqAdapter()


def brokers_of(connection: QueueConnection) -> Brokers:
    """The nodes of its broker, and how to reach them."""
    section = connection.section
    return Brokers(
        section.urls,
        connection.setting,
        section.ca_file,
        section.client_certificate,
        section.client_key,
        timeouts_of(connection.config),
    )
