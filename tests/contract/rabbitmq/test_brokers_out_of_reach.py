"""Brokers that take no connection: the next one is taken, or the sweep says so."""

import socket
from contextlib import suppress

import pytest

from duesweep.drivers.rabbitmq import brokers
from duesweep.errors import ConfigError, QueueError
from duesweep.queues.rabbitmq import link
from support.proxy import Proxy, Way
from support.rabbitmq.broker import Broker
from support.rabbitmq.sessions import (
    numbered,
    queue_of,
    sent,
    session_of,
    world_on,
)

NOBODY_LISTENS = "amqp://guest:guest@127.0.0.1:1/v"


def test_broker_that_accepts_and_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "_LONGEST_CONNECT_SECONDS", 1.0)
    monkeypatch.setattr(link, "CLAIM_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"amqp://guest:guest@127.0.0.1:{deaf.getsockname()[1]}/v"
        world = world_on(queue_of(url), *numbered(2), *numbered(2, "Shipping"))

        run = world.sweep()
        tries = _connections_to(deaf)

    # Not that many for each of the two endpoints.
    assert 1 <= tries <= 3
    assert len(world.store.rows) == 4
    assert world.store.attempts == {}
    (end,) = world.ends(run)
    assert end.reason is not None
    assert "Cannot connect to" in end.reason


def _connections_to(listener: socket.socket) -> int:
    listener.settimeout(0)
    count = 0
    with suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            count += 1
    return count


@pytest.mark.parametrize("how", ["nobody listens", "accepts and closes"])
def test_second_broker_is_taken_when_the_first_is_down(
    billing: Broker, proxy: Proxy, how: str
) -> None:
    first = NOBODY_LISTENS
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
        queue_of(NOBODY_LISTENS).check(None)
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
