"""Connections that break, and brokers that take none: no message is charged or lost."""

import time
from collections import Counter

import pytest

from duesweep.core.errors import ConfigError, QueueError
from duesweep.core.policy import BatchLimits
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

_NOBODY_LISTENS = "amqp://guest:guest@127.0.0.1:1/v"


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


@pytest.mark.parametrize("how", ["nobody listens", "accepts and closes"])
def test_second_broker_is_taken_when_the_first_is_down(
    billing: Broker, proxy: Proxy, how: str
) -> None:
    first = _NOBODY_LISTENS
    if how == "accepts and closes":
        proxy.cut_after(0, Way.TO_SERVER, each=True)
        first = billing.server.url(billing.vhost, proxy.port)
    # Often: it was a race between the first's thread and the second's.
    for _ in range(20):
        with session_of(queue_of(first, billing.url)) as session:
            session.deliver(session.resolve("Billing"), sent(1))

            assert session.confirm(60).unconfirmed == frozenset()

    assert billing.count("Billing") == 20


def test_check_tells_a_broker_that_is_down_from_a_wrong_setting(billing: Broker) -> None:
    with pytest.raises(QueueError, match=r"127\.0\.0\.1:1 vhost v"):
        queue_of(_NOBODY_LISTENS).check(None)
    with pytest.raises(ConfigError, match="check user, password, vhost"):
        queue_of(billing.url.replace("guest:guest", "guest:wr0ng")).check(None)
    with pytest.raises(ConfigError, match="check user, password, vhost") as caught:
        queue_of(billing.server.url("nowhere")).check(None)
    assert "guest:guest" not in str(caught.value)


def test_check_of_a_connection_that_is_cut_is_no_wrong_setting(
    billing: Broker, proxy: Proxy
) -> None:
    for count in (8, 100, 400):
        proxy.cut_after(count, Way.TO_SERVER, each=True)
        with pytest.raises(QueueError):
            queue_of(billing.server.url(billing.vhost, proxy.port)).check(None)
