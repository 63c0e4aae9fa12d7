"""Creates on a broker what NServiceBus's installers would create."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from duesweep.drivers.rabbitmq import (
    PRECONDITION_FAILED,
    Brokers,
    Channel,
    ChannelClosedError,
    RabbitMqConnection,
)
from duesweep.errors import ConfigError
from duesweep.queues.rabbitmq import declare, ladder
from duesweep.queues.rabbitmq.topology import Style, Topology, endpoint


@dataclass(frozen=True, slots=True)
class RabbitMqSetup:
    """The delay ladder and these endpoints, bound to it. `setting` is what messages name."""

    brokers: Brokers
    style: Style
    endpoints: tuple[str, ...]
    setting: str

    def script(self) -> str:
        """What `install` would create, as commented lines of JSON: RabbitMQ has no statements."""
        return "\n".join(f"-- {line}" for line in self._document().splitlines())

    def grants(self, role: str) -> str:  # noqa: ARG002 - RabbitMQ has no roles
        """A comment: rights on a broker are not given by statements."""
        return "-- Set the rights in RabbitMQ by `rabbitmqctl set_permissions` (docs/rabbitmq.md)."

    def install(self, *, rebind: bool) -> Sequence[object]:  # noqa: ARG002 - no journal is here
        """Create what is missing, and return its names. An endpoint's existing queue may be of any
        type.

        Raises `ConfigError` for an existing ladder that differs, and for missing rights.
        """
        with RabbitMqConnection(self.brokers) as connection:
            channel = Channel(connection)
            try:
                created = list(declare.find_missing(channel, ladder.ladder()))
                declare.create(channel, ladder.ladder())
                for name in self.endpoints:
                    created += declare.create_missing(channel, self._endpoint_topology(name))
            except ChannelClosedError as error:
                raise _refusal_error(self.setting, error) from error
        return created

    def _endpoint_topology(self, name: str) -> Topology:
        """What an endpoint needs, with its binding to the ladder."""
        wanted = endpoint(self.style, name)
        return replace(wanted, bindings=tuple(ladder.way_out(self.style, name)))

    def _document(self) -> str:
        wanted = sum(map(self._endpoint_topology, self.endpoints), ladder.ladder())
        return json.dumps(
            {
                "exchanges": [
                    f"{exchange.name} ({exchange.kind})" for exchange in wanted.exchanges
                ],
                "queues": [{queue.name: dict(queue.arguments)} for queue in wanted.queues],
                "bindings": [f"{b.source} -> {b.destination}: {b.key}" for b in wanted.bindings],
            },
            indent=1,
        )


def _refusal_error(setting: str, error: ChannelClosedError) -> ConfigError:
    if error.code == PRECONDITION_FAILED:
        return ConfigError(
            f"{setting}: something of the same name exists already, but differs: {error}",
            advice="move its messages, delete it, and run the command again",
        )
    return ConfigError(
        f"{setting}: {error}", advice="give this user the rights to configure, write and read"
    )
