"""Connecting to brokers again, by a process's sessions together."""

import pytest

from duesweep.core.errors import DestinationError, QueueError
from duesweep.core.world import SettableClock
from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.queues.rabbitmq import link
from duesweep.queues.rabbitmq.link import Link

BROKERS = Brokers(("amqp://broker.example",), "queues.rabbit")


class _Connection:
    loss = blocked_reason = None


class _Broker:
    """A broker that is down until `is_up`; `tried_at` is when connections to it were tried."""

    def __init__(self, clock: SettableClock) -> None:
        self.clock, self.is_up, self.tried_at = clock, False, list[float]()

    def connect(self, *_: object) -> _Connection:
        self.tried_at.append(self.clock.seconds())
        if not self.is_up:
            raise QueueError("The broker is down", transient=True)
        return _Connection()


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> _Broker:
    found = _Broker(SettableClock())
    monkeypatch.setattr(link, "RabbitMqConnection", found.connect)
    return found


def _fails(broker: _Broker) -> int:
    """Connect in vain with a new session; how often that was tried."""
    before = len(broker.tried_at)
    with pytest.raises(DestinationError, match="The broker is down") as caught:
        Link(BROKERS, 10, broker.clock).connect()
    assert caught.value.transient
    return len(broker.tried_at) - before


def test_sessions_of_a_process_find_out_together_that_a_broker_is_down(broker: _Broker) -> None:
    """Messages for other destinations wait for each try."""
    first, at_once = _fails(broker), _fails(broker)
    broker.clock.advance(60)
    later = _fails(broker)
    broker.clock.advance(60)
    broker.is_up = True
    Link(BROKERS, 10, broker.clock).connect()
    broker.is_up = False

    assert (first, at_once, later) == (3, 0, 1)
    # Not known to be down any more, so a broker that restarts gets some time.
    assert _fails(broker) == 3
