"""A broker that accepts what it is sent and never answers: each wait for it ends in time."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from duesweep.core.policy import BatchLimits
from duesweep.core.timeouts import Timeouts
from duesweep.drivers.rabbitmq import Brokers, Channel, RabbitMqConnection
from duesweep.drivers.rabbitmq.management import Management
from duesweep.errors import DestinationError, QueueError
from duesweep.queues.rabbitmq.migration.migrate import Migration
from duesweep.queues.rabbitmq.session import RabbitMqQueueSession
from duesweep.queues.rabbitmq.setup import RabbitMqSetup
from duesweep.queues.rabbitmq.topology import Style
from duesweep.queues.rabbitmq.verification.verify import Verification
from support.proxy import Proxy, Way
from support.rabbitmq.broker import Broker
from support.rabbitmq.sessions import (
    arrived,
    bodies,
    numbered,
    queue_of,
    sent,
    session_of,
    world_on,
)

_SILENCE_SECONDS = 6.0
_TIMEOUTS = Timeouts(_SILENCE_SECONDS)
# A machine with much to do is late; a wait without end is later.
_LATE_SECONDS = 60.0
_SILENT_BATCH = 5


@contextmanager
def _in_time(seconds: float = _SILENCE_SECONDS) -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds + _LATE_SECONDS


@pytest.fixture
def brokers(billing: Broker, proxy: Proxy) -> Brokers:
    """The broker through the proxy."""
    return _brokers(billing.server.url(billing.vhost, proxy.port))


@pytest.fixture
def _silent_when_asked(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker lets the user in, and answers no question."""
    ask = Channel.ask

    def asked(channel: Channel, question: Any) -> Any:
        proxy.fall_silent()
        return ask(channel, question)

    monkeypatch.setattr(Channel, "ask", asked)


def _brokers(*urls: str) -> Brokers:
    return Brokers(urls, "queues.default", timeouts=_TIMEOUTS)


# From before the broker's first word to just before its last.
@pytest.mark.parametrize("answered_bytes", [0, 8, 300, 490, 505, 520, 530])
def test_connection_is_not_waited_for(brokers: Brokers, proxy: Proxy, answered_bytes: int) -> None:
    proxy.hold_after(answered_bytes, Way.TO_CLIENT)

    with _in_time(_TIMEOUTS.connect_seconds), pytest.raises(QueueError) as caught:
        RabbitMqConnection(brokers)

    assert caught.value.transient


@pytest.mark.parametrize("scheme", ["amqp", "amqps"])
def test_many_brokers_are_not_waited_for_one_after_the_other(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"{scheme}://guest:guest@127.0.0.1:{deaf.getsockname()[1]}/v"

        with _in_time(), pytest.raises(QueueError):
            queue_of(*[url] * 12, timeouts=_TIMEOUTS).check(None)


def test_last_of_many_brokers_is_still_given_time(billing: Broker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"amqp://guest:guest@127.0.0.1:{deaf.getsockname()[1]}/v"

        replace(queue_of(url, url, billing.url), holds_own_queue=False).check("Billing")


_COMMANDS: dict[str, Callable[[Brokers], object]] = {
    "setup": lambda b: RabbitMqSetup(b, Style.CONVENTIONAL, ("New",), "url").install(rebind=False),
    "verify": lambda b: list(Verification(b, None).findings()),
    "migrate": lambda b: Migration(b, Style.CONVENTIONAL, "url", 10).count(),
}


@pytest.mark.usefixtures("_silent_when_asked")
@pytest.mark.parametrize("command", _COMMANDS.values(), ids=_COMMANDS)
def test_command_does_not_wait_for_an_answer(
    brokers: Brokers, command: Callable[[Brokers], object]
) -> None:
    with _in_time(), pytest.raises(QueueError, match=r"timeouts\.silence_seconds"):
        command(brokers)


@pytest.mark.usefixtures("_silent_when_asked")
def test_gate_does_not_wait_for_an_answer(billing: Broker, proxy: Proxy) -> None:
    url = billing.server.url(billing.vhost, proxy.port)

    with _in_time(), pytest.raises(QueueError, match=r"timeouts\.silence_seconds"):
        queue_of(url, timeouts=_TIMEOUTS).check("Billing")


def test_management_api_is_not_waited_for(billing: Broker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        api = Management(f"http://127.0.0.1:{deaf.getsockname()[1]}", _brokers(billing.url))

        with _in_time(), pytest.raises(QueueError, match=r"timeouts\.silence_seconds"):
            api.ask("overview")


def test_question_of_a_task_and_its_end_are_not_waited_for(billing: Broker, proxy: Proxy) -> None:
    url = billing.server.url(billing.vhost, proxy.port)
    with _in_time(), session_of(queue_of(url, timeouts=_TIMEOUTS)) as session:
        session.resolve("Billing")
        proxy.fall_silent()
        for name in ("Shipping", "Other", "Another"):
            with pytest.raises(DestinationError, match=r"timeouts\.silence_seconds"):
                session.resolve(name)


def test_full_socket_is_not_waited_for(billing: Broker, proxy: Proxy) -> None:
    url = billing.server.url(billing.vhost, proxy.port)
    with _in_time(), session_of(queue_of(url, timeouts=_TIMEOUTS)) as session:
        found = session.resolve("Billing")
        session.deliver(found, sent(1))
        session.confirm(60)
        proxy.freeze()
        many = sent(4_000, size=8_000)
        session.deliver(found, many)
        answer = session.confirm(60)

    assert answer.unconfirmed == {one.key for one in many}
    assert answer.refused == {}


@pytest.mark.parametrize("way", list(Way))
def test_slice_ends_with_its_reason_and_the_next_sweep_completes(
    billing: Broker, proxy: Proxy, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = numbered(300, size=1_000)
    url = billing.server.url(billing.vhost, proxy.port)
    world = world_on(queue_of(url, timeouts=_TIMEOUTS), *rows)
    deliver, batches = RabbitMqQueueSession.deliver, count(1)

    def delivered(*arguments: Any) -> Any:
        if next(batches) == _SILENT_BATCH:
            proxy.fall_silent(way)
        return deliver(*arguments)

    monkeypatch.setattr(RabbitMqQueueSession, "deliver", delivered)

    with _in_time():
        run = world.sweep(limits=BatchLimits(rows=20))

    (end,) = world.ends(run)
    assert end.reason is not None
    assert "timeouts.silence_seconds" in end.reason
    assert world.store.attempts == {}
    assert len(world.store.rows) == 300 - (_SILENT_BATCH - 1) * 20

    proxy.heal()
    world.sweep(limits=BatchLimits(rows=20))

    assert world.store.rows == {}
    found = arrived(billing, "Billing", 300)
    assert set(found) == bodies(rows)
    assert found.total() == 300 + (20 if way is Way.TO_CLIENT else 0)
