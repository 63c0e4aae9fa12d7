"""Creates what NServiceBus's installers would create on a broker."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from duesweep.drivers.rabbitmq import (
    PRECONDITION_FAILED,
    Brokers,
    Channel,
    ChannelClosedError,
    Connection,
)
from duesweep.errors import ConfigError
from duesweep.queues.rabbitmq import declare, ladder
from duesweep.queues.rabbitmq.topology import Kind, Style, Topology, delivery_binding, endpoint


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
        """Create what is missing; the names of what was created.

        Raises `ConfigError` for what is there and different, or what this user may not create.
        """
        created: list[object] = []
        with Connection(self.brokers) as connection:
            channel = Channel(connection)
            for topology in self.topologies():
                try:
                    missing = list(_missing(channel, topology))
                    declare.create(channel, topology)
                except ChannelClosedError as error:
                    raise _refused(self.setting, error) from error
                created += missing
        return created

    def topologies(self) -> Iterator[Topology]:
        """The ladder first, which the endpoints are bound to."""
        yield ladder.ladder()
        for name in self.endpoints:
            yield endpoint(self.style, name) + Topology(
                bindings=(
                    delivery_binding(
                        self.style, name, ladder.DELIVERY_EXCHANGE, ladder.binding_key(name)
                    ),
                )
            )

    def _document(self) -> str:
        wanted = sum(self.topologies(), Topology())
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


def _missing(channel: Channel, topology: Topology) -> Iterator[str]:
    wanted = [(Kind.EXCHANGE, exchange.name) for exchange in topology.exchanges]
    wanted += [(Kind.QUEUE, queue.name) for queue in topology.queues]
    for kind, name in wanted:
        if not declare.is_there(channel, kind, name):
            yield f"{kind} {name}"


def _refused(setting: str, error: ChannelClosedError) -> ConfigError:
    if error.code == PRECONDITION_FAILED:
        return ConfigError(
            f"{setting}: something of the same name, but different, is there already: {error}; "
            "move what it holds, and delete it"
        )
    return ConfigError(f"{setting}: {error}; give this user the rights to configure, write, read")
