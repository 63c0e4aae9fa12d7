"""Wiring of the commands on RabbitMQ."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from duesweep.config import Config
from duesweep.core.errors import ConfigError
from duesweep.queues.rabbitmq.migration.migrate import Migration
from duesweep.queues.rabbitmq.migration.report import (
    LevelReport,
    MigrationProgress,
    MigrationReport,
)
from duesweep.queues.rabbitmq.session import RabbitMqSender, open_sender
from duesweep.queues.rabbitmq.topology import RabbitMqSetup, Style
from duesweep.queues.rabbitmq.verification.verify import Verification
from duesweep.wiring.dialects import QueueConnection, connections
from duesweep.wiring.rabbitmq import brokers, queue_step

__all__ = ["LevelReport", "Migration", "MigrationProgress", "MigrationReport"]


def installer(config: Config, connection: str | None, endpoints: Sequence[str]) -> RabbitMqSetup:
    """Creates the delay ladder and these endpoints."""
    return queue_step(_connection(config, connection), tuple(endpoints))


def verification(config: Config, connection: str | None) -> Verification:
    """Checks the delay ladder."""
    found = _connection(config, connection)
    url = found.section.management_url
    return Verification(brokers(found), None if url is None else url.get_secret_value())


def sender(config: Config, connection: str | None) -> AbstractContextManager[RabbitMqSender]:
    """Sends new messages to endpoints."""
    found = _connection(config, connection)
    return open_sender(brokers(found), Style(found.section.topology))


def migration(config: Config, connection: str | None) -> Migration:
    """Moves messages from the first delay ladder to the second."""
    found = _connection(config, connection)
    return Migration(
        brokers(found),
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
