"""A broker that takes what it is sent and never answers: commands, gates and slices end in time.

For the waits of one session see tests/contract/test_silence.py.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from duesweep.core.errors import QueueError
from duesweep.core.policy import BatchLimits, Timeouts
from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.drivers.rabbitmq.management import Management
from duesweep.queues.rabbitmq.migration.migrate import Migration
from duesweep.queues.rabbitmq.topology import RabbitMqSetup, Style
from duesweep.queues.rabbitmq.verification.verify import Verification
from support.proxy import Proxy, Way
from support.rabbitmq.broker import Broker
from support.rabbitmq.sessions import arrived, bodies, numbered, queue_of, world_on
from support.waiting import in_time

_TIMEOUTS = Timeouts(6.0)
_IMPATIENT = Timeouts(3.0)
# The five bytes of AMQP's method channel.open: the user is let in by then.
_OPEN_CHANNEL = b"\x00\x00\x00\x05\x00\x14\x00\x0a"


@pytest.fixture
def deaf() -> Iterator[socket.socket]:
    """Connections to it are made, and nothing is read from them."""
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
        queue_of(*urls, timeouts=_IMPATIENT).check(None)


def test_last_of_many_brokers_is_still_given_time(billing: Broker, deaf: socket.socket) -> None:
    queue = queue_of(_url(deaf), _url(deaf), billing.url, timeouts=Timeouts(30))

    replace(queue, holds_own_queue=False).check("Billing")


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
    "verify": lambda url: list(Verification(_brokers(url), None).findings()),
    "migrate": lambda url: Migration(_brokers(url), Style.CONVENTIONAL, "url", 10).count(),
    "gate": lambda url: queue_of(url, timeouts=_IMPATIENT).check("Billing"),
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
        run = world.sweep(limits=BatchLimits(rows=20))

    assert len(fruitless) == 1
    (end,) = world.ends(run)
    assert end.reason is not None
    assert "has not confirmed messages for 2 s" in end.reason
    assert "timeouts.silence_seconds" in end.reason
    assert world.store.attempts == {}
    assert 0 < len(world.store.rows) <= 300
    gone = bodies(rows) - bodies(list(world.store.rows.values()))

    proxy.heal()
    world.sweep(limits=BatchLimits(rows=20))

    assert world.store.rows == {}
    found = arrived(billing, "Billing", 300)
    assert set(found) == bodies(rows)
    assert all(found[body] == 1 for body in gone)
    # What it had taken and could not confirm.
    assert found.total() <= 300 + 20
    assert way is Way.TO_SERVER or found.total() > 300
