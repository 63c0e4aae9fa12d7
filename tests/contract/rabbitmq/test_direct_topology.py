"""Endpoints of the direct topology: queues alone, reached by the default exchange."""

import pytest

from duesweep.core.errors import QueueNotFoundError
from duesweep.queues.rabbitmq.topology import Style
from support.rabbitmq.broker import Broker
from support.rabbitmq.sessions import (
    arrived,
    bodies,
    numbered,
    queue_of,
    queue_session,
    sent,
    world_on,
)


def test_messages_reach_queues_without_exchanges(broker: Broker) -> None:
    for name in ("Billing", "Ship.ping"):
        broker.create_queue(name, x_queue_type="classic")
    rows = [*numbered(3), *numbered(2, "Ship.ping"), *numbered(1, "Nowhere")]
    world = world_on(queue_of(broker.url, style=Style.DIRECT), *rows)

    world.sweep()

    assert arrived(broker, "Billing", 3) == dict.fromkeys(bodies(rows[:3]), 1)
    assert arrived(broker, "Ship.ping", 2) == dict.fromkeys(bodies(rows[3:5]), 1)
    assert list(world.store.rows) == list(world.store.attempts) == [rows[5].key]


def test_exchange_alone_is_no_endpoint(broker: Broker) -> None:
    broker.channel.exchange_declare("Billing", "fanout")

    with queue_session(broker, Style.DIRECT) as session, pytest.raises(QueueNotFoundError):
        session.resolve("Billing")


def test_queue_that_goes_after_it_was_found_fails_alone(broker: Broker) -> None:
    for name in ("Billing", "Gone"):
        broker.create_queue(name, x_queue_type="classic")
    with queue_session(broker, Style.DIRECT) as session:
        billing, gone = session.resolve("Billing"), session.resolve("Gone")
        broker.channel.queue_delete("Gone")
        lost = sent(2)
        session.deliver(gone, lost)
        session.deliver(billing, sent(2))
        answer = session.confirm(60)

    assert set(answer.refused) == {m.key for m in lost}
    assert answer.unconfirmed == frozenset()
    assert broker.count("Billing") == 2
