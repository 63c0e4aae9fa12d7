"""What has to exist on a broker, as values, and how messages reach endpoints of both topologies.

The layouts are those of NServiceBus's RabbitMQ transport: *conventional* has a fanout exchange and
a quorum queue of an endpoint's name, bound to each other; *direct* has the queue alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """What a binding leads to."""

    EXCHANGE = "exchange"
    QUEUE = "queue"


class Style(StrEnum):
    """The transport's routing topologies."""

    CONVENTIONAL = "conventional"
    DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class Exchange:
    """A durable exchange."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class BrokerQueue:
    """A durable queue."""

    name: str
    arguments: Mapping[str, str | int] = field(default_factory=lambda: {"x-queue-type": "quorum"})


@dataclass(frozen=True, slots=True)
class Binding:
    """From an exchange to a queue or to another exchange."""

    source: str
    destination: str
    kind: Kind
    key: str = ""


@dataclass(frozen=True, slots=True)
class Topology:
    """Things that belong together on a broker."""

    exchanges: tuple[Exchange, ...] = ()
    queues: tuple[BrokerQueue, ...] = ()
    bindings: tuple[Binding, ...] = ()

    def __add__(self, other: "Topology") -> "Topology":
        return Topology(
            self.exchanges + other.exchanges,
            self.queues + other.queues,
            self.bindings + other.bindings,
        )


def endpoint(style: Style, name: str) -> Topology:
    """What an endpoint needs, or any queue that messages are sent to."""
    if style is Style.DIRECT:
        return Topology(queues=(BrokerQueue(name),))
    return Topology(
        (Exchange(name, "fanout"),), (BrokerQueue(name),), (Binding(name, name, Kind.QUEUE),)
    )


def entry(style: Style, name: str) -> tuple[str, str]:
    """The exchange and the routing key by which messages reach an endpoint."""
    return ("", name) if style is Style.DIRECT else (name, "")


def delivery_binding(style: Style, name: str, exchange: str, key: str) -> Binding:
    """The binding by which delayed messages reach an endpoint."""
    kind = Kind.QUEUE if style is Style.DIRECT else Kind.EXCHANGE
    return Binding(exchange, name, kind, key)
