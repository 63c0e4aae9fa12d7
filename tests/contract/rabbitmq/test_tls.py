"""Sessions on brokers behind TLS, and what sessions leave behind: nothing."""

import gc
import threading
from pathlib import Path

import pytest

from duesweep.core.errors import ConfigError, DuesweepError, QueueNotFoundError
from duesweep.drivers.rabbitmq import connection
from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.drivers.rabbitmq.publisher import Publisher
from duesweep.queues.rabbitmq.session import RabbitMqQueue
from duesweep.queues.rabbitmq.topology import Style
from duesweep_testing.builders import ENDPOINT
from support.logins import Authority
from support.proxy import Proxy, Way
from support.rabbitmq.broker import Broker
from support.rabbitmq.sessions import NO_STORE, connections, queue_of, sent, session_of
from support.waiting import until


def _queue(url: str, authority: Path | None, client: tuple[Path, Path] | None) -> RabbitMqQueue:
    certificate, key = map(str, client) if client else (None, None)
    ca_file = str(authority) if authority else None
    brokers = Brokers((url,), "queues.default", ca_file, certificate, key)
    return RabbitMqQueue(brokers, Style.CONVENTIONAL, ENDPOINT, 2000)


def _refused(queue: RabbitMqQueue, error: type[DuesweepError] = ConfigError) -> str:
    with pytest.raises(error, match="certificate") as caught:
        queue.check(None, NO_STORE)
    assert "guest:guest" not in str(caught.value)
    return str(caught.value).lower()


def test_messages_arrive_over_tls_with_a_clients_certificate(billing: Broker) -> None:
    authority = billing.server.authority
    url = billing.server.tls_url(billing.vhost)
    queue = _queue(url, authority.certificate, authority.sign("client"))

    with session_of(queue) as session:
        session.deliver(session.resolve("Billing"), sent(500))
        answer = session.confirm(60)

    assert (answer.refused, answer.unconfirmed) == ({}, frozenset())
    assert billing.count("Billing") == 500


def test_broker_that_wants_a_certificate_refuses_who_has_none(broker: Broker) -> None:
    authority = broker.server.authority
    url = broker.server.tls_url(broker.vhost)

    # By TLS 1.3 a broker's refusal may be lost as its connection ends: then the error is another
    # one, which also speaks of certificates.
    refusal = _refused(_queue(url, authority.certificate, None), DuesweepError)

    assert "certificate required" in refusal or "another client certificate" in refusal


def test_certificate_of_another_authority_is_refused_by_the_broker(
    broker: Broker, tmp_path: Path
) -> None:
    authority = broker.server.authority
    stranger = Authority(tmp_path, "stranger").sign("client")
    url = broker.server.tls_url(broker.vhost)

    refusal = _refused(_queue(url, authority.certificate, stranger), DuesweepError)

    assert "unknown ca" in refusal or "another client certificate" in refusal


@pytest.mark.parametrize("trusted", ["another authority", "the machine's authorities"])
def test_broker_of_an_unknown_authority_is_refused(
    broker: Broker, tmp_path: Path, trusted: str
) -> None:
    other = Authority(tmp_path, "stranger")
    other.sign("client")
    ca_file = other.certificate if trusted == "another authority" else None
    url = broker.server.tls_url(broker.vhost)
    client = broker.server.authority.sign("client")

    assert "certificate verify failed" in _refused(_queue(url, ca_file, client))


def test_broker_of_another_name_is_refused(broker: Broker) -> None:
    authority = broker.server.authority
    url = broker.server.tls_url(broker.vhost, host="127.0.0.1")

    refusal = _refused(_queue(url, authority.certificate, authority.sign("client")))

    assert "127.0.0.1" in refusal
    assert "certificate verify failed" in refusal


def test_tls_to_a_port_that_speaks_none_is_refused(broker: Broker) -> None:
    url = broker.server.url(broker.vhost).replace("amqp:", "amqps:")

    assert "uses tls" in _refused(_queue(url, None, None))


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
        # The tests' own, the one for questions, and the publisher's.
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
