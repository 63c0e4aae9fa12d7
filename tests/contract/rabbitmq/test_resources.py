"""What sessions leave behind: nothing."""

import gc
import threading
from pathlib import Path

import pytest

from duesweep.core.errors import QueueNotFoundError
from duesweep.drivers.rabbitmq import connection
from duesweep.drivers.rabbitmq.publisher import Publisher
from support.proxy import Proxy, Way
from support.rabbitmq.broker import Broker
from support.rabbitmq.sessions import connections, queue_of, sent, session_of
from support.waiting import until


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts what Linux lists")
def test_fifty_sessions_leave_no_thread_and_no_connection(billing: Broker) -> None:
    def session_of_a_task() -> None:
        with session_of(queue_of(billing.url)) as session:
            session.deliver(session.resolve("Billing"), sent(2))
            session.confirm(60)
            with pytest.raises(QueueNotFoundError):
                session.resolve("Nowhere")

    session_of_a_task()
    gc.collect()
    threads, files = threading.active_count(), _open_files()

    for _ in range(50):
        session_of_a_task()

    gc.collect()
    until(lambda: threading.active_count() == threads and _open_files() <= files)
    assert billing.count("Billing") == 102


def test_session_whose_broker_fell_silent_leaves_nothing(
    billing: Broker, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_CLOSE_SECONDS", 0.2)
    files = _open_files()
    with session_of(queue_of(billing.server.url(billing.vhost, proxy.port))) as session:
        session.resolve("Billing")
        proxy.hold_after(0, Way.TO_SERVER)

    until(lambda: connections() == set())
    proxy.close()
    gc.collect()
    until(lambda: _open_files() <= files)


def test_endpoints_that_are_gone_leave_no_channel_and_no_publisher(billing: Broker) -> None:
    with session_of(queue_of(billing.url)) as session:
        for number in range(20):
            name = f"Gone{number}"
            billing.create(name, x_queue_type="classic")
            gone = session.resolve(name)
            billing.delete(name)
            session.deliver(gone, sent(1))
            assert len(session.confirm(60).refused) == 1

        session.deliver(session.resolve("Billing"), sent(1))
        assert session.confirm(60).unconfirmed == frozenset()
        gc.collect()
        publishers = [one for one in gc.get_objects() if isinstance(one, Publisher)]
        # The tests' own, the one for questions, and the one that publishes.
        until(lambda: len(_channels(billing)) <= 3)

    assert len(publishers) <= 2


def _channels(broker: Broker) -> list[str]:
    listed = broker.server.control("list_channels", "vhost", "number").splitlines()
    return [line for line in listed if line.startswith(broker.vhost)]


def test_no_more_goes_out_unconfirmed_than_may_be_in_flight(
    billing: Broker, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_CLOSE_SECONDS", 0.2)
    url = billing.server.url(billing.vhost, proxy.port)
    with session_of(queue_of(url, max_in_flight=7)) as session:
        found = session.resolve("Billing")
        session.deliver(found, sent(1))
        session.confirm(60)
        proxy.hold_after(0, Way.TO_CLIENT)

        session.deliver(found, sent(100))
        billing.wait_for("Billing", 1 + 7)
        answer = session.confirm(0.5)

        assert len(answer.unconfirmed) == 100
        assert billing.count("Billing") == 1 + 7
