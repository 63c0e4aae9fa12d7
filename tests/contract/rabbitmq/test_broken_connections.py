"""Connections that break or fall silent: no message is charged or lost."""

import time
from collections import Counter
from typing import Any

import pytest

from duesweep.core.policy import BatchLimits
from duesweep.drivers.rabbitmq import connection
from duesweep.errors import DestinationError
from duesweep.queues.rabbitmq import link
from support.proxy import Proxy, Way
from support.rabbitmq.broker import Broker
from support.rabbitmq.sessions import (
    arrived,
    bodies,
    connections,
    numbered,
    queue_of,
    sent,
    session_of,
    world_on,
)
from support.waiting import until


@pytest.mark.parametrize(
    ("count", "way"),
    [
        # While the connection is made, between messages, in the middle of one, in an answer.
        *[(count, Way.TO_SERVER) for count in (10, 200, 600, 900, 5_000, 100_000, 250_000)],
        *[(count, Way.TO_CLIENT) for count in (10, 450, 590, 610, 650)],
    ],
)
def test_connection_that_is_cut_is_made_again_and_carries_the_rest(
    billing: Broker, proxy: Proxy, count: int, way: Way
) -> None:
    rows = numbered(300, size=1_000)
    world = world_on(queue_of(billing.server.url(billing.vhost, proxy.port)), *rows)
    proxy.cut_after(count, way)

    run = world.sweep(limits=BatchLimits(rows=100))

    assert proxy.cuts == 1
    assert world.store.rows == {}
    assert world.store.attempts == {}
    assert [end.reason for end in world.ends(run)] == [None]
    found = arrived(billing, "Billing", 300)
    assert set(found) == bodies(rows)
    assert found.total() <= 400, "more was sent again than the batch that was cut"


def test_connection_that_the_broker_closes_between_batches_is_made_again(billing: Broker) -> None:
    first, second = sent(3), sent(2)
    with session_of(queue_of(billing.url)) as session:
        session.deliver(session.resolve("Billing"), first)
        session.confirm(60)
        (before,) = connections()
        until(billing.cut_connections)
        until(lambda: not before.is_alive())

        session.deliver(session.resolve("Billing"), second)
        answer = session.confirm(60)

    assert (answer.refused, answer.unconfirmed) == ({}, frozenset())
    assert billing.count("Billing") == 5


def test_question_is_repeated_if_the_connection_breaks(billing: Broker, proxy: Proxy) -> None:
    url = billing.server.url(billing.vhost, proxy.port)
    with session_of(queue_of(url)) as session:
        session.resolve("Billing")
        billing.create("Shipping", x_queue_type="classic")
        # Less than the question takes: it is cut in the middle.
        proxy.cut()

        assert session.resolve("Shipping") == "Shipping"


def test_publication_is_released_not_refused_if_the_connection_breaks(
    billing: Broker, proxy: Proxy
) -> None:
    first, second = sent(2), sent(300)
    url = billing.server.url(billing.vhost, proxy.port)
    with session_of(queue_of(url)) as session:
        found = session.resolve("Billing")
        session.deliver(found, first)
        session.confirm(60)
        proxy.cut()
        session.deliver(found, second)
        answer = session.confirm(60)

        assert answer.refused == {}
        left = [m for m in second if m.key in answer.unconfirmed]
        session.deliver(session.resolve("Billing"), left)
        again = session.confirm(60)

    assert (again.refused, again.unconfirmed) == ({}, frozenset())
    assert bodies(second) == set(arrived(billing, "Billing", 300))


def test_broker_that_cuts_every_connection_is_left_alone_after_some(
    billing: Broker, proxy: Proxy
) -> None:
    rows = numbered(50, size=1_000)
    world = world_on(queue_of(billing.server.url(billing.vhost, proxy.port)), *rows)
    proxy.cut_after(2_000, Way.TO_SERVER, each=True)

    run = world.sweep(limits=BatchLimits(rows=10))

    assert proxy.connections <= 10
    assert world.store.attempts == {}
    (end,) = world.ends(run)
    assert end.reason is not None
    assert "lost" in end.reason
    gone = bodies(rows) - bodies(list(world.store.rows.values()))
    assert gone <= set(arrived(billing, "Billing", len(gone)))


def test_broker_that_falls_silent_in_a_batch_is_not_waited_for_twice(
    billing: Broker, proxy: Proxy, fruitless: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duesweep.delivery.CLAIM_SECONDS", 3.0)
    monkeypatch.setattr(connection, "_CLOSE_SECONDS", 0.5)
    rows = numbered(200, size=1_000)
    world = world_on(queue_of(billing.server.url(billing.vhost, proxy.port)), *rows)
    proxy.hold_after(50_000, Way.TO_SERVER)

    run = world.sweep(limits=BatchLimits(rows=20))

    assert len(fruitless) == 1
    assert world.store.attempts == {}
    (end,) = world.ends(run)
    assert end.reason is not None
    assert "has not confirmed messages for 3 s" in end.reason
    assert 0 < len(world.store.rows) < 200
    gone = bodies(rows) - bodies(list(world.store.rows.values()))
    assert gone <= set(arrived(billing, "Billing", len(gone)))


def test_broker_that_answers_no_question_is_asked_one_only(
    billing: Broker, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A question is waited for twice as long.
    monkeypatch.setattr(link, "CLAIM_SECONDS", 1.5)
    monkeypatch.setattr(connection, "_CLOSE_SECONDS", 0.5)
    url = billing.server.url(billing.vhost, proxy.port)
    with session_of(queue_of(url)) as session:
        session.resolve("Billing")
        proxy.hold_after(0, Way.TO_CLIENT)
        questions: list[object] = []
        call = connection.RabbitMqConnection.call

        def counted(one: connection.RabbitMqConnection, act: Any) -> Any:
            questions.append(act)
            return call(one, act)

        monkeypatch.setattr(connection.RabbitMqConnection, "call", counted)
        for name in ("Shipping", "Other", "Another"):
            with pytest.raises(DestinationError, match="has not answered for 3 s"):
                session.resolve(name)

        assert len(questions) == 1


def test_heartbeats_go_on_while_the_store_works(billing: Broker) -> None:
    with session_of(queue_of(f"{billing.url}?heartbeat=2")) as session:
        session.deliver(session.resolve("Billing"), sent(10))
        before = connections()
        # As a store does: Python's lock is held most of the time. A broker hangs up after four.
        deadline, work = time.monotonic() + 7, Counter[int]()
        while time.monotonic() < deadline:
            work.update(range(1_000))

        session.deliver(session.resolve("Billing"), sent(10))
        answer = session.confirm(60)

        assert connections() == before
    assert answer.unconfirmed == frozenset()
    assert billing.count("Billing") == 20
