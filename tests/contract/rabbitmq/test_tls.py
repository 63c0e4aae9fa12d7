"""Brokers behind TLS that ask for a certificate."""

from pathlib import Path

import pytest

from duesweep.core.errors import ConfigError, DuesweepError
from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.queues.rabbitmq.session import RabbitMqQueue
from duesweep.queues.rabbitmq.topology import Style
from duesweep_testing.builders import ENDPOINT
from support.certificates import Authority
from support.rabbitmq.broker import Broker
from support.rabbitmq.sessions import sent, session_of


def _queue(url: str, authority: Path | None, client: tuple[Path, Path] | None) -> RabbitMqQueue:
    certificate, key = map(str, client) if client else (None, None)
    ca_file = str(authority) if authority else None
    brokers = Brokers((url,), "queues.default", ca_file, certificate, key)
    return RabbitMqQueue(brokers, Style.CONVENTIONAL, ENDPOINT, 2000)


def _refused(queue: RabbitMqQueue, error: type[DuesweepError] = ConfigError) -> str:
    with pytest.raises(error, match="certificate") as caught:
        queue.check(None)
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
    # one, which speaks of certificates, too.
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
