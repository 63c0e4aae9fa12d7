"""Connections that break, and brokers that refuse them or never answer: no message is charged or
lost, and all ends in time.
"""

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest

from duesweep.core.errors import ConfigError, QueueError
from duesweep.core.policy import BatchSize, Timeouts
from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.drivers.rabbitmq.management import Management
from duesweep.queues.base import Confirmation
from duesweep.queues.rabbitmq.checks import examine
from duesweep.queues.rabbitmq.session import RabbitMqQueueSession
from duesweep.queues.rabbitmq.topology import RabbitMqSetup, Style
from duesweep.stores import tombstone
from duesweep_testing.builders import DelayedRow
from duesweep_testing.journal import BatchEntry
from duesweep_transport.migration import Migration
from support.proxy import Proxy, Way
from support.rabbitmq.broker import Broker
from support.rabbitmq.sessions import (
    NO_STORE,
    arrived,
    bodies,
    connections,
    numbered,
    queue_of,
    sent,
    session_of,
    world_on,
)
from support.waiting import in_time, until

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

    run = world.sweep(batch_size=BatchSize(rows=100))

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

    run = world.sweep(batch_size=BatchSize(rows=10))

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
        queue_of(_NOBODY_LISTENS).check(None, NO_STORE)
    with pytest.raises(ConfigError, match="check user, password, vhost"):
        queue_of(billing.url.replace("guest:guest", "guest:wr0ng")).check(None, NO_STORE)
    with pytest.raises(ConfigError, match="check user, password, vhost") as caught:
        queue_of(billing.server.url("nowhere")).check(None, NO_STORE)
    assert "guest:guest" not in str(caught.value)


def test_check_of_a_connection_that_is_cut_is_no_wrong_setting(
    billing: Broker, proxy: Proxy
) -> None:
    for count in (8, 100, 400):
        proxy.cut_after(count, Way.TO_SERVER, each=True)
        with pytest.raises(QueueError):
            queue_of(billing.server.url(billing.vhost, proxy.port)).check(None, NO_STORE)


ENDPOINTS = ("Billing", "Shipping", "Ship.ping")
COUNT = 1_000
_CUT_IN_BATCHES = (3, 8, 15)


@dataclass
class _Witness:
    """Cuts the connection in the middle of some batches, and notes the unconfirmed messages."""

    proxy: Proxy
    batches: int = 0
    unconfirmed: Counter[str] = field(default_factory=Counter)

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        deliver, confirm = RabbitMqQueueSession.deliver, RabbitMqQueueSession.confirm

        def delivered(session: RabbitMqQueueSession, *arguments: Any) -> Any:
            refused = deliver(session, *arguments)
            self.batches += 1
            if self.batches in _CUT_IN_BATCHES:
                self.proxy.cut()
            return refused

        def confirmed(session: RabbitMqQueueSession, seconds: float) -> Confirmation:
            answer = confirm(session, seconds)
            self.unconfirmed.update(answer.unconfirmed)
            return answer

        monkeypatch.setattr(RabbitMqQueueSession, "deliver", delivered)
        monkeypatch.setattr(RabbitMqQueueSession, "confirm", confirmed)


def _rows() -> list[DelayedRow]:
    """Of every endpoint alternately."""
    by_endpoint = [numbered(COUNT, name, size=500) for name in ENDPOINTS]
    return [row for rows in zip(*by_endpoint, strict=True) for row in rows]


def _accounted(entries: list[Any]) -> Counter[str]:
    batches = [e for e in entries if isinstance(e, BatchEntry) and e.outcomes is not None]
    return Counter(
        row["message_key"] for e in batches for row in tombstone.decode(e.outcomes).to_pylist()
    )


def test_all_arrive_and_only_what_was_unconfirmed_arrives_twice(
    broker: Broker, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ENDPOINTS:
        broker.create(name, x_queue_type="classic")
    rows = _rows()
    world = world_on(queue_of(broker.server.url(broker.vhost, proxy.port)), *rows)
    witness = _Witness(proxy)
    witness.watch(monkeypatch)

    run = world.sweep(batch_size=BatchSize(rows=300))

    assert proxy.cuts == len(_CUT_IN_BATCHES)
    assert witness.unconfirmed, "no cut was in the middle of a batch"
    assert world.store.rows == {}
    assert world.store.attempts == {}
    assert _accounted(world.store.journal[run.sweep_id]) == {row.key: 1 for row in rows}
    assert [end.reason for end in world.ends(run)] == [None]
    sendings = {row.key: 1 + witness.unconfirmed[row.key] for row in rows}
    for place, name in enumerate(ENDPOINTS):
        found = arrived(broker, name, COUNT)
        own = {row.body: sendings[row.key] for row in rows[place :: len(ENDPOINTS)]}
        assert set(found) == set(own)
        assert all(found[body] <= own[body] for body in own if body is not None)


def test_messages_of_a_batch_arrive_in_order(broker: Broker) -> None:
    broker.create("Billing", x_queue_type="classic")
    rows = numbered(1_500)
    # Fewer at a time than a batch has: order must not depend on the number that fits.
    world = world_on(queue_of(broker.url, max_in_flight=7), *rows)

    world.sweep(batch_size=BatchSize(rows=500))

    bodies = [body for _, _, body in broker.take_all("Billing", 1_500)]
    assert len(bodies) == 1_500
    assert all(one < next_one for one, next_one in pairwise(bodies))


_TIMEOUTS = Timeouts(6.0)
_IMPATIENT = Timeouts(3.0)
# The five bytes of AMQP's method channel.open: the user is let in by then.
_OPEN_CHANNEL = b"\x00\x00\x00\x05\x00\x14\x00\x0a"


@pytest.fixture
def deaf() -> Iterator[socket.socket]:
    """Connections to it are made, but not read."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def _url(deaf: socket.socket, scheme: str = "amqp") -> str:
    return f"{scheme}://guest:guest@127.0.0.1:{deaf.getsockname()[1]}/v"


def _brokers(url: str) -> Brokers:
    return Brokers((url,), "queues.default", timeouts=_IMPATIENT)


@pytest.mark.parametrize("scheme", ["amqp", "amqps"])
def test_many_brokers_are_not_waited_for_one_after_the_other(
    deaf: socket.socket, scheme: str
) -> None:
    urls = [_url(deaf, scheme)] * 12

    with in_time(len(urls) * _IMPATIENT.connect_seconds / 2), pytest.raises(QueueError):
        queue_of(*urls, timeouts=_IMPATIENT).check(None, NO_STORE)


def test_last_of_many_brokers_is_still_given_time(billing: Broker, deaf: socket.socket) -> None:
    queue = queue_of(_url(deaf), _url(deaf), billing.url, timeouts=Timeouts(30))

    replace(queue, holds_own_queue=False).check("Billing", NO_STORE)


def test_broker_that_takes_a_connection_and_says_nothing_is_given_up(deaf: socket.socket) -> None:
    queue = queue_of(_url(deaf), timeouts=_IMPATIENT)
    world = world_on(queue, *numbered(2), *numbered(2, "Shipping"))

    run = world.sweep()

    # Not that many for each of the two endpoints.
    assert 1 <= _connections_to(deaf) <= 3
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


_COMMANDS: dict[str, Callable[[str], object]] = {
    "setup": lambda url: RabbitMqSetup(_brokers(url), Style.CONVENTIONAL, ("New",), "url").install(
        rebind=False
    ),
    "verify": lambda url: list(
        examine(_brokers(url), (), Style.DIRECT, needs_ladder=True, management_url=None)
    ),
    "migrate": lambda url: Migration(_brokers(url), Style.CONVENTIONAL, "url", 10).count(),
    "gate": lambda url: queue_of(url, timeouts=_IMPATIENT).check("Billing", NO_STORE),
}


@pytest.mark.parametrize("command", _COMMANDS.values(), ids=_COMMANDS)
def test_command_does_not_wait_for_an_answer(
    billing: Broker, proxy: Proxy, command: Callable[[str], object]
) -> None:
    proxy.fall_silent_at(_OPEN_CHANNEL)

    with in_time(), pytest.raises(QueueError, match=r"timeouts\.silence_seconds"):
        command(billing.server.url(billing.vhost, proxy.port))

    assert proxy.has_sprung.is_set()


def test_management_api_is_not_waited_for(deaf: socket.socket) -> None:
    api = Management(f"http://127.0.0.1:{deaf.getsockname()[1]}", _brokers(_url(deaf)))

    with in_time(), pytest.raises(QueueError, match=r"timeouts\.silence_seconds"):
        api.ask("overview")


@pytest.mark.parametrize(("way", "count"), [(Way.TO_SERVER, 50_000), (Way.TO_CLIENT, 700)])
def test_slice_waits_once_and_the_next_sweep_completes(
    billing: Broker, proxy: Proxy, fruitless: list[int], way: Way, count: int
) -> None:
    rows = numbered(300, size=1_000)
    url = billing.server.url(billing.vhost, proxy.port)
    world = world_on(queue_of(url, timeouts=_TIMEOUTS), *rows)
    proxy.hold_after(count, way)

    with in_time():
        run = world.sweep(batch_size=BatchSize(rows=20))

    assert len(fruitless) == 1
    (end,) = world.ends(run)
    assert end.reason is not None
    assert "has not confirmed messages for 2 s" in end.reason
    assert "timeouts.silence_seconds" in end.reason
    assert world.store.attempts == {}
    assert 0 < len(world.store.rows) <= 300
    gone = bodies(rows) - bodies(list(world.store.rows.values()))

    proxy.heal()
    world.sweep(batch_size=BatchSize(rows=20))

    assert world.store.rows == {}
    found = arrived(billing, "Billing", 300)
    assert set(found) == bodies(rows)
    assert all(found[body] == 1 for body in gone)
    # Messages that it had taken and could not confirm.
    assert found.total() <= 300 + 20
    assert way is Way.TO_SERVER or found.total() > 300
