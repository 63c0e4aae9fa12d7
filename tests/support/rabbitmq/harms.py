"""The possible faults of a delay ladder, and the expected findings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from duesweep.queues.rabbitmq import topology
from support.rabbitmq.broker import Broker
from support.rabbitmq.commands import run
from support.waiting import until

_LEVEL, _BELOW = topology.level_name(3), topology.level_name(2)
_FIRST = topology.level_name(3, topology.FIRST_PREFIX)
_KEY = "*." * 24 + "1.#"


@dataclass(frozen=True)
class Harm:
    """A fault of a ladder: its name, how to cause it, the finding, and how to undo it."""

    name: str
    harm: Callable[[Broker], object]
    said: set[tuple[str, str]]
    mend: Callable[[Broker], object] = lambda _: None
    by_amqp: bool = True


def _delete_queue(broker: Broker) -> None:
    broker.channel.queue_delete(_LEVEL)


def _replace_queue(broker: Broker, **changed: Any) -> None:
    wanted = {queue.name: queue.arguments for queue in topology.ladder().queues}[_LEVEL]
    arguments = {**wanted, **{name.replace("_", "-"): value for name, value in changed.items()}}
    kept = {name: value for name, value in arguments.items() if value is not None}
    broker.channel.queue_delete(_LEVEL)
    broker.channel.queue_declare(_LEVEL, durable=True, arguments=kept)
    broker.channel.queue_bind(_LEVEL, _LEVEL, _KEY)


def _replace_delivery(broker: Broker) -> None:
    broker.channel.exchange_delete(topology.DELIVERY_EXCHANGE)
    broker.channel.exchange_declare(topology.DELIVERY_EXCHANGE, "fanout", durable=True)
    broker.channel.exchange_bind(
        topology.DELIVERY_EXCHANGE, topology.level_name(0), "*." * 27 + "0.#"
    )


def _policy(broker: Broker) -> None:
    definition = {"max-length": 10, "message-ttl": 5_000, "dead-letter-exchange": "elsewhere"}
    path = "policies/{vhost}/short"
    broker.api(path, "PUT", {"pattern": f"^{_LEVEL}$", "definition": definition})
    until(lambda: broker.told_of_queues()[_LEVEL][0] == "short")


def _first_ladder(broker: Broker) -> None:
    broker.channel.queue_declare(_FIRST, durable=True)
    broker.channel.confirm_delivery()
    broker.channel.basic_publish("", _FIRST, b"")
    until(lambda: broker.told_of_queues()[_FIRST][2] == 1)


HARMS = [
    Harm("missing queue", _delete_queue, {("ladder-queue", _LEVEL), ("ladder-binding", _LEVEL)}),
    Harm(
        "missing exchange",
        lambda broker: broker.channel.exchange_delete(_LEVEL),
        {
            ("ladder-exchange", _LEVEL),
            ("ladder-binding", _LEVEL),
            ("ladder-binding", topology.level_name(4)),
        },
    ),
    Harm(
        "wrong ttl",
        lambda broker: _replace_queue(broker, x_message_ttl=9_000),
        {("ladder-queue", _LEVEL)},
        _delete_queue,
    ),
    Harm(
        "one argument more",
        lambda broker: _replace_queue(broker, x_max_length=1_000),
        {("ladder-queue", _LEVEL)},
        _delete_queue,
    ),
    Harm(
        "classic queue",
        lambda broker: _replace_queue(broker, x_queue_type=None, x_dead_letter_strategy=None),
        {("ladder-queue", _LEVEL)},
        _delete_queue,
    ),
    Harm(
        "missing binding",
        lambda broker: broker.channel.queue_unbind(_LEVEL, _LEVEL, _KEY),
        {("ladder-binding", _LEVEL)},
        by_amqp=False,
    ),
    Harm(
        "strange binding",
        lambda broker: broker.channel.exchange_bind("Billing", _LEVEL, "#"),
        {("ladder-binding", _LEVEL)},
        lambda broker: broker.channel.exchange_unbind("Billing", _LEVEL, "#"),
        by_amqp=False,
    ),
    Harm(
        "strange binding into a level",
        lambda broker: broker.channel.queue_bind(_LEVEL, "Billing"),
        {("ladder-binding", "Billing")},
        lambda broker: broker.channel.queue_unbind(_LEVEL, "Billing"),
        by_amqp=False,
    ),
    Harm(
        "delivery exchange of another type",
        _replace_delivery,
        {("ladder-exchange", topology.DELIVERY_EXCHANGE)},
        lambda broker: broker.channel.exchange_delete(topology.DELIVERY_EXCHANGE),
    ),
    Harm(
        "destination without a queue",
        lambda broker: broker.channel.queue_delete("Billing"),
        {("delivery-binding", "Billing")},
        by_amqp=False,
    ),
    Harm(
        "names that one key fits",
        lambda broker: run(broker, "endpoint", "create", "Orders"),
        {("delivery-binding", "Orders")},
        lambda broker: broker.delete("Orders"),
        by_amqp=False,
    ),
    Harm(
        "a key for everything",
        lambda broker: broker.channel.exchange_bind("Billing", topology.DELIVERY_EXCHANGE, "#"),
        {("delivery-binding", "Billing")},
        lambda broker: broker.channel.exchange_unbind("Billing", topology.DELIVERY_EXCHANGE, "#"),
        by_amqp=False,
    ),
    Harm(
        "policy",
        _policy,
        {("ladder-policy", _LEVEL)},
        lambda broker: broker.api("policies/{vhost}/short", "DELETE"),
        by_amqp=False,
    ),
    Harm(
        "messages on the first ladder",
        _first_ladder,
        {("first-ladder", "nsb.delay-…")},
        lambda broker: broker.channel.queue_delete(_FIRST),
    ),
]
