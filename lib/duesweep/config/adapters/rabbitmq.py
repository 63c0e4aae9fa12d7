"""RabbitMQ: endpoints on a broker as queues, their checks, and the parts for commands on it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from duesweep.config import Config
from duesweep.config.adapters import Adapter, Needs, QueueConnection, Service, connections
from duesweep.core.errors import ConfigError
from duesweep.core.finding import Finding
from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.queues.rabbitmq.migration import LevelReport, Migration, MigrationReport
from duesweep.queues.rabbitmq.session import RabbitMqQueue, RabbitMqSender, open_sender
from duesweep.queues.rabbitmq.topology import RabbitMqSetup, Style, checked_name

# For the command that migrates.
__all__ = ["LevelReport", "Migration", "MigrationReport"]


class RabbitMqAdapter(Adapter):
    """Queues are endpoints, by their names; a broker has no store."""

    def queue(self, connection: QueueConnection) -> RabbitMqQueue:
        section = connection.section
        return RabbitMqQueue(
            _brokers(connection),
            Style(section.topology),
            connection.config.store.endpoint,
            section.max_in_flight,
            needs_ladder=connection.needs_ladder,
            is_punctual=bool(connection.config.sweep.look_ahead_seconds),
            holds_own_queue=not connection.is_routed and connection.config.store.kind != "msmq",
        )

    def queue_table(self, connection: QueueConnection, address: str | None) -> str:
        return checked_name(connection.config.store.endpoint if address is None else address)

    def setup_step(self, connection: QueueConnection, queues: Mapping[str, str]) -> RabbitMqSetup:
        style = Style(connection.section.topology)
        return RabbitMqSetup(
            _brokers(connection), style, tuple(queues), f"{connection.setting}.url"
        )

    def service(
        self,
        config: Config,  # noqa: ARG002 - as for a database
        connection: QueueConnection | None,
        queues: Callable[[], Sequence[tuple[str, str]]],
    ) -> Service:
        assert connection is not None  # a store is in a database
        where, style = _brokers(connection), Style(connection.section.topology)
        url, needs_ladder = _management_url(connection), connection.needs_ladder

        def findings() -> Iterator[Finding]:
            # It loads what asks over HTTP, which no sweep does.
            from duesweep.queues.rabbitmq.checks import examine  # noqa: PLC0415

            return examine(where, queues(), style, needs_ladder=needs_ladder, management_url=url)

        return Service(connection.setting, findings)

    def needs(self, dsns: Sequence[str]) -> Needs:  # noqa: ARG002 - whatever they are
        return Needs(["pika"])


ADAPTER = RabbitMqAdapter()


def installer(config: Config, connection: str | None, endpoints: Sequence[str]) -> RabbitMqSetup:
    """Creates the delay ladder and these endpoints."""
    return ADAPTER.setup_step(
        _connection(config, connection), dict.fromkeys(endpoints, "an endpoint")
    )


def ladder_findings(config: Config, connection: str | None) -> Iterator[Finding]:
    """Findings on the delay ladder."""
    from duesweep.queues.rabbitmq.checks import examine_ladder  # noqa: PLC0415 - no sweep

    found = _connection(config, connection)
    return examine_ladder(_brokers(found), _management_url(found))


def sender(config: Config, connection: str | None) -> AbstractContextManager[RabbitMqSender]:
    """Sends new messages to endpoints."""
    found = _connection(config, connection)
    return open_sender(_brokers(found), Style(found.section.topology))


def migration(config: Config, connection: str | None) -> Migration:
    """Moves messages from the first delay ladder to the second."""
    found = _connection(config, connection)
    return Migration(
        _brokers(found),
        Style(found.section.topology),
        f"{found.setting}.url",
        found.section.max_in_flight,
    )


def _connection(config: Config, name: str | None) -> QueueConnection:
    """The connection `name`; None: queues.default, or the only connection to RabbitMQ."""
    found = {n: c for n, c in connections(config).items() if c.kind == "rabbitmq"}
    wanted = name or ("default" if "default" in found or len(found) != 1 else min(found))
    if wanted not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigError(
            f"There is no connection {wanted} to RabbitMQ",
            advice=(
                f"name one of kind rabbitmq with --connection (there are: {known}), or add a "
                "section [queues.NAME]"
            ),
        )
    return found[wanted]


def _brokers(connection: QueueConnection) -> Brokers:
    section = connection.section
    return Brokers(
        section.urls,
        connection.setting,
        section.ca_file,
        section.client_certificate,
        section.client_key,
        connection.timeouts,
    )


def _management_url(connection: QueueConnection) -> str | None:
    url = connection.section.management_url
    return url.get_secret_value() if url else None
