"""The delay ladder: 28 levels of a broker's queues, in which messages wait until they are due.

The layout is that of NServiceBus's RabbitMQ transport. Level *n* holds a message for 2**n seconds,
then its queue dead-letters it to the level below. A routing key is the delay as 28 bits, highest
first, and the destination: at each level the bit says whether the message waits there.
"""

from collections.abc import Iterator, Sequence

from duesweep.queues.rabbitmq.topology import (
    Binding,
    BrokerQueue,
    Exchange,
    Kind,
    Style,
    Topology,
    delivery_binding,
    endpoint,
)

LEVELS = 28
LONGEST_DELAY_SECONDS = (1 << LEVELS) - 1
DELAY_HEADER = "NServiceBus.Transport.RabbitMQ.DelayInSeconds"
# What a broker notes about dead-lettering. On a message that is sent again it would be wrong.
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


def level_name(level: int, prefix: str = PREFIX) -> str:
    """The name of a level's exchange and queue."""
    return f"{prefix}delay-level-{level:02}"


def routing_key(seconds: int, destination: str) -> str:
    """The routing key of a message that has to reach `destination` in so many seconds."""
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


def way_out(style: Style, destination: str) -> Sequence[Binding]:
    """The bindings by which messages that leave the ladder reach a destination's queue."""
    own = endpoint(style, destination).bindings
    key = binding_key(destination)
    return (*own, delivery_binding(style, destination, DELIVERY_EXCHANGE, key))


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
