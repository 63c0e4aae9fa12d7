"""Endpoints and the delay ladder: exchanges, queues and bindings as values, and their creation.

The layouts are from NServiceBus's RabbitMQ transport. In the *conventional* topology an
endpoint has a fanout exchange and a quorum queue of its name, bound to each other; in the *direct*
one it has the queue alone.

The ladder has 28 levels, in which messages wait until they are due. Level *n* holds a message for
2**n seconds, then its queue dead-letters it to the level below. A routing key is the delay as 28
bits, highest first, and the destination: at each level the bit says whether the message waits
there.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from duesweep.core.errors import ConfigError, UnreadableAddressError
from duesweep.drivers.rabbitmq.connection import Brokers, Channel, RabbitMqConnection
from duesweep.drivers.rabbitmq.errors import PRECONDITION_FAILED, ChannelClosedError

LONGEST_NAME = 255
# A broker removes them where it looks for a name: it would find another queue, or itself.
_LINE_ENDS = frozenset("\r\n")
LEVELS = 28
LONGEST_DELAY_SECONDS = (1 << LEVELS) - 1
DELAY_HEADER = "NServiceBus.Transport.RabbitMQ.DelayInSeconds"
# A broker's notes about dead-lettering. On a message that is sent again it would be wrong.
BROKER_HEADERS = (
    "x-death",
    *(
        f"x-{which}-death-{what}"
        for which in ("first", "last")
        for what in ("exchange", "queue", "reason")
    ),
)
# The first version has classic queues; their names lack the `v2.`.
PREFIX, FIRST_PREFIX = "nsb.v2.", "nsb."
DELIVERY_EXCHANGE = f"{PREFIX}delay-delivery"

_BITS_LENGTH = 2 * LEVELS


class Kind(StrEnum):
    """The target of a binding."""

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

    @property
    def names(self) -> list[str]:
        """Each exchange and queue as its kind and its name."""
        return [
            *(f"{Kind.EXCHANGE} {exchange.name}" for exchange in self.exchanges),
            *(f"{Kind.QUEUE} {queue.name}" for queue in self.queues),
        ]

    def __add__(self, other: "Topology") -> "Topology":
        return Topology(
            self.exchanges + other.exchanges,
            self.queues + other.queues,
            self.bindings + other.bindings,
        )


def endpoint(style: Style, name: str) -> Topology:
    """The topology of an endpoint, or of any queue that messages are sent to."""
    if style is Style.DIRECT:
        return Topology(queues=(BrokerQueue(name),))
    return Topology(
        (Exchange(name, "fanout"),), (BrokerQueue(name),), (Binding(name, name, Kind.QUEUE),)
    )


def byte_length(name: str) -> int:
    """The length in bytes; 0 for a name that is not valid in UTF-8."""
    try:
        return len(name.encode())
    except UnicodeEncodeError:
        return 0


def checked_name(name: str) -> str:
    """`name`. Raises `UnreadableAddressError` if no queue can have it."""
    if 0 < byte_length(name) <= LONGEST_NAME and _LINE_ENDS.isdisjoint(name):
        return name
    raise UnreadableAddressError(f"{name!r} cannot be the name of a queue on RabbitMQ")


def exchange_and_key(style: Style, name: str) -> tuple[str, str]:
    """The exchange and the routing key by which messages reach an endpoint."""
    return ("", name) if style is Style.DIRECT else (name, "")


def level_name(level: int, prefix: str = PREFIX) -> str:
    """The name of a level's exchange and queue."""
    return f"{prefix}delay-level-{level:02}"


def routing_key(seconds: int, destination: str) -> str:
    """The routing key of a message that has to reach `destination` in `seconds`."""
    bits = f"{seconds:0{LEVELS}b}"
    return ".".join((*bits, destination))


def destination_of(key: str) -> str | None:
    """The destination in a routing key of the ladder; None for any other key."""
    bits = key[:_BITS_LENGTH]
    is_one = len(bits) == _BITS_LENGTH and set(bits[::2]) <= {"0", "1"} and set(bits[1::2]) == {"."}
    return key[_BITS_LENGTH:] or None if is_one else None


def binding_key(destination: str) -> str:
    """The key that binds a destination to the delivery exchange."""
    return f"#.{destination}"


def way_out(style: Style, destination: str) -> tuple[Binding, ...]:
    """The bindings by which messages that leave the ladder reach a destination's queue."""
    kind = Kind.QUEUE if style is Style.DIRECT else Kind.EXCHANGE
    last = Binding(DELIVERY_EXCHANGE, destination, kind, binding_key(destination))
    return (*endpoint(style, destination).bindings, last)


def ladder() -> Topology:
    """All levels, and the delivery exchange."""
    levels = range(LEVELS)
    return Topology(
        exchanges=(
            *(Exchange(level_name(level), "topic") for level in levels),
            Exchange(DELIVERY_EXCHANGE, "topic"),
        ),
        queues=tuple(_queue(level) for level in levels),
        bindings=tuple(binding for level in levels for binding in _bindings(level)),
    )


def _queue(level: int) -> BrokerQueue:
    return BrokerQueue(
        level_name(level),
        {
            "x-queue-type": "quorum",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "x-message-ttl": 2**level * 1_000,
            "x-dead-letter-exchange": _below(level),
        },
    )


def _bindings(level: int) -> Iterator[Binding]:
    name, higher_bits = level_name(level), "*." * (LEVELS - 1 - level)
    yield Binding(name, name, Kind.QUEUE, f"{higher_bits}1.#")
    yield Binding(name, _below(level), Kind.EXCHANGE, f"{higher_bits}0.#")


def _below(level: int) -> str:
    return level_name(level - 1) if level else DELIVERY_EXCHANGE


def find(channel: Channel, kind: Kind, name: str) -> None:
    """Raise `ChannelClosedError` (404) unless the exchange or queue exists."""
    channel.ask(f"{kind}_declare", name, passive=True)


def is_there(channel: Channel, kind: Kind, name: str) -> bool:
    """Whether the exchange or queue exists."""
    try:
        find(channel, kind, name)
    except ChannelClosedError as error:
        if not error.is_missing:
            raise
        return False
    return True


def count(channel: Channel, queue: str) -> int:
    """How many messages wait in a queue that exists."""
    return int(channel.ask("queue_declare", queue, passive=True).message_count)


def create(channel: Channel, topology: Topology) -> None:
    """Create missing parts. Raises `ChannelClosedError` (406) for existing ones that differ."""
    for exchange in topology.exchanges:
        channel.ask("exchange_declare", exchange.name, exchange.kind, durable=True)
    for queue in topology.queues:
        channel.ask("queue_declare", queue.name, durable=True, arguments=dict(queue.arguments))
    for binding in topology.bindings:
        bind(channel, binding)


def find_missing(channel: Channel, topology: Topology) -> Topology:
    """The exchanges and queues that do not exist, and all bindings."""
    return replace(
        topology,
        exchanges=tuple(
            e for e in topology.exchanges if not is_there(channel, Kind.EXCHANGE, e.name)
        ),
        queues=tuple(q for q in topology.queues if not is_there(channel, Kind.QUEUE, q.name)),
    )


def bind(channel: Channel, binding: Binding) -> None:
    """Create a binding, if it is missing."""
    channel.ask(
        f"{binding.kind}_bind", binding.destination, binding.source, routing_key=binding.key
    )


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
        return "-- Set the rights in RabbitMQ by `rabbitmqctl set_permissions` (docs/security.md)."

    def install(self, *, rebind: bool) -> Sequence[str]:  # noqa: ARG002 - no journal is here
        """Create missing parts. Returns the done steps, as `SqlSetup`."""
        return [f"created {name}" for name in self.create()]

    def create(self) -> Sequence[str]:
        """Create missing parts, and return their names. An endpoint's existing queue may be of any
        type.

        Raises `ConfigError` for an existing ladder that differs, and for missing rights.
        """
        with RabbitMqConnection(self.brokers) as connection:
            channel = Channel(connection)
            try:
                created = find_missing(channel, ladder()).names
                create(channel, ladder())
                for name in self.endpoints:
                    missing = find_missing(channel, self._endpoint_topology(name))
                    create(channel, missing)
                    created += missing.names
            except ChannelClosedError as error:
                raise _refusal_error(self.setting, error) from error
        return created

    def _endpoint_topology(self, name: str) -> Topology:
        """The topology of an endpoint, with its binding to the ladder."""
        return replace(endpoint(self.style, name), bindings=way_out(self.style, name))

    def _document(self) -> str:
        wanted = sum(map(self._endpoint_topology, self.endpoints), ladder())
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
