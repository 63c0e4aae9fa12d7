"""Finds and creates exchanges, queues and bindings on a broker."""

from collections.abc import Iterator

from duesweep.drivers.rabbitmq import NOT_FOUND, Channel, ChannelClosedError
from duesweep.queues.rabbitmq.topology import Binding, BrokerQueue, Exchange, Kind, Topology


def find(channel: Channel, kind: Kind, name: str) -> None:
    """Raise `ChannelClosedError` (404) unless the exchange or queue exists."""
    if kind is Kind.QUEUE:
        channel.ask(lambda pika, answer: pika.queue_declare(name, passive=True, callback=answer))
    else:
        channel.ask(lambda pika, answer: pika.exchange_declare(name, passive=True, callback=answer))


def is_there(channel: Channel, kind: Kind, name: str) -> bool:
    """Whether the exchange or queue exists."""
    try:
        find(channel, kind, name)
    except ChannelClosedError as error:
        if error.code != NOT_FOUND:
            raise
        return False
    return True


def count(channel: Channel, queue: str) -> int:
    """How many messages wait in a queue that exists."""
    answer = channel.ask(
        lambda pika, answer: pika.queue_declare(queue, passive=True, callback=answer)
    )
    return int(answer.message_count)


def create(channel: Channel, topology: Topology) -> None:
    """Create what is missing. Raises `ChannelClosedError` (406) for what exists but differs."""
    for exchange in topology.exchanges:
        _create_exchange(channel, exchange)
    for queue in topology.queues:
        _create_queue(channel, queue)
    for binding in topology.bindings:
        bind(channel, binding)


def create_missing(channel: Channel, topology: Topology) -> list[str]:
    """Create what is missing, and leave the rest as it is. Returns what was created."""
    created = list(find_missing(channel, topology))
    create(
        channel,
        Topology(
            tuple(e for e in topology.exchanges if f"{Kind.EXCHANGE} {e.name}" in created),
            tuple(q for q in topology.queues if f"{Kind.QUEUE} {q.name}" in created),
            topology.bindings,
        ),
    )
    return created


def find_missing(channel: Channel, topology: Topology) -> Iterator[str]:
    """The exchanges and queues that do not exist, each as its kind and its name."""
    wanted = [(Kind.EXCHANGE, exchange.name) for exchange in topology.exchanges]
    wanted += [(Kind.QUEUE, queue.name) for queue in topology.queues]
    for kind, name in wanted:
        if not is_there(channel, kind, name):
            yield f"{kind} {name}"


def bind(channel: Channel, binding: Binding) -> None:
    """Create a binding, if it is missing."""
    source, key = binding.source, binding.key
    if binding.kind is Kind.QUEUE:
        channel.ask(
            lambda pika, answer: pika.queue_bind(
                binding.destination, source, routing_key=key, callback=answer
            )
        )
    else:
        channel.ask(
            lambda pika, answer: pika.exchange_bind(
                binding.destination, source, routing_key=key, callback=answer
            )
        )


def _create_exchange(channel: Channel, exchange: Exchange) -> None:
    channel.ask(
        lambda pika, answer: pika.exchange_declare(
            exchange.name, exchange.kind, durable=True, callback=answer
        )
    )


def _create_queue(channel: Channel, queue: BrokerQueue) -> None:
    channel.ask(
        lambda pika, answer: pika.queue_declare(
            queue.name, durable=True, arguments=dict(queue.arguments), callback=answer
        )
    )
