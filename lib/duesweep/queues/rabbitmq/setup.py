"""Creates what NServiceBus's installers would create on a broker."""

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
    """The delay ladder, and what these endpoints need, bound to it. `setting` names the broker."""

    brokers: Brokers
    style: Style
    endpoints: tuple[str, ...]
    setting: str

    def script(self) -> str:
        """What is to be there, as one document of JSON: RabbitMQ has no statements to show."""
        return "\n".join(f"-- {line}" for line in self._document().splitlines())

    def install(self, *, rebind: bool) -> Sequence[object]:  # noqa: ARG002 - no journal is here
        """Create what is missing; the names of what was created. An endpoint's queue that is there
        may be of any type.

        Raises `ConfigError` for a ladder that is there and different, or what this user may not
        create.
        """
        with RabbitMqConnection(self.brokers) as connection:
            channel = Channel(connection)
            try:
                created = list(declare.missing(channel, ladder.ladder()))
                declare.create(channel, ladder.ladder())
                for name in self.endpoints:
                    created += declare.create_missing(channel, self._bound_endpoint(name))
            except ChannelClosedError as error:
                raise _refused(self.setting, error) from error
        return created

    def _bound_endpoint(self, name: str) -> Topology:
        """What an endpoint needs, and its binding to the ladder."""
        wanted = endpoint(self.style, name)
        return replace(wanted, bindings=tuple(ladder.way_out(self.style, name)))

    def _document(self) -> str:
        wanted = sum(map(self._bound_endpoint, self.endpoints), ladder.ladder())
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


def _refused(setting: str, error: ChannelClosedError) -> ConfigError:
    if error.code == PRECONDITION_FAILED:
        return ConfigError(
            f"{setting}: something of the same name, but different, is there already: {error}",
            advice="move what it holds, and delete it",
        )
    return ConfigError(
        f"{setting}: {error}", advice="give this user the rights to configure, write, read"
    )
