"""The work on a broker that a configuration names: set-up, checks, a sender, a migration."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from duesweep.config import Config
from duesweep.config.adapters import QueueConnection, connections
from duesweep.config.adapters.rabbitmq import ADAPTER, brokers_of
from duesweep.core.errors import ConfigError, UnreadableAddressError
from duesweep.core.finding import Finding
from duesweep.queues.rabbitmq.topology import RabbitMqSetup, Style, checked_name
from duesweep_transport.migration import Migration
from duesweep_transport.sender import RabbitMqSender, open_sender


def installer(config: Config, connection: str | None, endpoints: Sequence[str]) -> RabbitMqSetup:
    """Creates the delay ladder and these endpoints. Raises `ConfigError` for a name that no queue
    can have.
    """
    for name in endpoints:
        try:
            checked_name(name)
        except UnreadableAddressError as error:
            raise ConfigError(str(error), advice="give one with 1 to 255 bytes") from error
        if name.startswith("amq."):
            raise ConfigError(
                f"{name!r} cannot be the name of a queue: RabbitMQ keeps names that begin with "
                "amq. for itself",
                advice="give another one",
            )
    return ADAPTER.setup_step(
        _connection(config, connection), dict.fromkeys(endpoints, "an endpoint")
    )


def ladder_findings(config: Config, connection: str | None) -> Iterator[Finding]:
    """Findings on the delay ladder."""
    return ADAPTER.examine(config, _connection(config, connection), lambda: ())


def sender(config: Config, connection: str | None) -> AbstractContextManager[RabbitMqSender]:
    """Sends new messages to endpoints."""
    found = _connection(config, connection)
    return open_sender(brokers_of(found), Style(found.section.topology))


def migration(config: Config, connection: str | None) -> Migration:
    """Moves messages from the first delay ladder to the second."""
    found = _connection(config, connection)
    return Migration(
        brokers_of(found),
        Style(found.section.topology),
        f"{found.setting}.url",
        found.section.max_in_flight,
    )


def _connection(config: Config, name: str | None) -> QueueConnection:
    """The connection `name`; None: queues.default, or the only connection to RabbitMQ."""
    every = connections(config, needs_ladder=True)
    found = {n: c for n, c in every.items() if c.kind == "rabbitmq"}
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
