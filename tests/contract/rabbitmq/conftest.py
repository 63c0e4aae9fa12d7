"""Parts that the tests of RabbitMQ share."""

from collections.abc import Iterator

import pytest

from duesweep.queues.base import Confirmation
from duesweep.queues.rabbitmq import link
from duesweep.queues.rabbitmq.session import RabbitMqQueueSession
from support.proxy import Proxy, proxied
from support.rabbitmq.broker import Broker
from support.rabbitmq.sessions import connections
from support.waiting import until


@pytest.fixture(autouse=True)
def _no_connection_is_left() -> Iterator[None]:
    before = connections()
    yield
    until(lambda: connections() <= before)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy is no silent broker: tests of that say how long they wait."""
    monkeypatch.setattr("duesweep.sweep.delivery.CLAIM_SECONDS", 120.0)
    monkeypatch.setattr(link, "CLAIM_SECONDS", 120.0)


@pytest.fixture
def fruitless(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One number for each wait for confirms that ended without all of them: those it missed."""
    missed: list[int] = []
    confirm = RabbitMqQueueSession.confirm

    def confirmed(session: RabbitMqQueueSession, seconds: float) -> Confirmation:
        answer = confirm(session, seconds)
        if answer.unconfirmed:
            missed.append(len(answer.unconfirmed))
        return answer

    monkeypatch.setattr(RabbitMqQueueSession, "confirm", confirmed)
    return missed


@pytest.fixture
def billing(broker: Broker) -> Broker:
    """With endpoint Billing, on a classic queue: those are made faster."""
    broker.create("Billing", x_queue_type="classic")
    return broker


@pytest.fixture
def proxy(broker: Broker) -> Iterator[Proxy]:
    with proxied(broker.server.amqp) as proxy:
        yield proxy
