"""Endpoints whose queue is unavailable, while others of the broker are not."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from duesweep.core.errors import DestinationError, QueueError, QueueNotFoundError
from duesweep.core.message import Message
from duesweep.core.world import SettableClock
from duesweep.drivers.rabbitmq.errors import ChannelClosedError, UnansweredError
from duesweep.drivers.rabbitmq.publisher import Publication, PublishResult
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.session import RabbitMqQueueSession
from duesweep.queues.rabbitmq.topology import Kind, Style
from duesweep.queues.rabbitmq.wire import Punctuality
from duesweep_testing.builders import delayed_row, message

_DOWN = ChannelClosedError(
    404, "NOT_FOUND - home node 'b' of durable queue 'Down' in vhost 'v' is down or inaccessible"
)
_MISSING = ChannelClosedError(404, "NOT_FOUND - no queue 'Down' in vhost 'v'")
_LATE = UnansweredError("not confirmed in time", transient=True)


class Broker:
    """A link whose broker takes all messages but those for the endpoint `Down`."""

    channel: Any = None
    longest_wait_seconds = 1.0

    def __init__(self, result: PublishResult, fault: QueueError | None) -> None:
        self.clock = SettableClock()
        self.fault, self._result = fault, result
        self._published: list[Publication] = []
        self.noted: list[QueueError | None] = []
        self.silent = set[str]()

    def ask(self, act: Callable[[], object]) -> object:
        return act()

    def publisher(self) -> "Broker":
        return self

    def publish(self, publications: Sequence[Publication], hold_seconds: Sequence[float]) -> None:
        assert len(publications) == len(hold_seconds)
        self._published += publications

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def take_results(self) -> list[PublishResult]:
        published, self._published = self._published, []
        return [
            self._result if each.exchange == "Down" else PublishResult.CONFIRMED
            for each in published
        ]

    def note(self, fault: QueueError | None, *, is_fruitful: bool) -> None:
        assert is_fruitful
        self.noted.append(fault)


def _session(
    patch: pytest.MonkeyPatch, broker: Broker, answer: ChannelClosedError | None
) -> RabbitMqQueueSession:
    def find(_: Any, kind: Kind, name: str) -> None:
        if (kind, name) == (Kind.QUEUE, "Down") and answer is not None:
            raise answer

    patch.setattr(topology, "find", find)
    link: Any = broker
    return RabbitMqQueueSession(link, Style.CONVENTIONAL, "Own", Punctuality(is_wanted=False))


def _messages(name: str, count: int = 2) -> list[Message]:
    return [message(delayed_row(name)) for _ in range(count)]


def test_messages_of_a_queue_whose_node_is_down_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = _session(monkeypatch, Broker(PublishResult.RETURNED, None), _DOWN)
    held = _messages("Down")

    assert session.deliver(session.resolve("Down"), held) == {}
    assert session.deliver(session.resolve("Up"), _messages("Up")) == {}
    answer = session.confirm(1.0)

    assert answer.refused == {}
    assert answer.unconfirmed == {each.key for each in held}
    with pytest.raises(DestinationError, match="is down or inaccessible") as caught:
        session.deliver("Down", held)
    assert caught.value.transient
    # The next one tries it again.
    assert session.deliver("Down", held[:1]) == {}


@pytest.mark.parametrize("answer", [_MISSING, None], ids=["no queue", "not bound"])
def test_messages_that_no_queue_takes_fail(
    monkeypatch: pytest.MonkeyPatch, answer: ChannelClosedError | None
) -> None:
    session = _session(monkeypatch, Broker(PublishResult.RETURNED, None), answer)
    lost = _messages("Down")
    session.deliver(session.resolve("Down"), lost)

    confirmation = session.confirm(1.0)

    assert confirmation.unconfirmed == frozenset()
    assert {type(each) for each in confirmation.refused.values()} == {QueueNotFoundError}


def test_silent_endpoint_is_left_alone_and_the_broker_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(PublishResult.UNKNOWN, _LATE)
    session = _session(monkeypatch, broker, None)
    held = _messages("Down")
    session.deliver(session.resolve("Down"), held)
    session.deliver(session.resolve("Up"), _messages("Up"))

    answer = session.confirm(1.0)

    assert answer.unconfirmed == {each.key for each in held}
    assert broker.noted == [None]
    with pytest.raises(DestinationError, match="is unavailable, and others are not") as caught:
        session.deliver("Down", held)
    assert not caught.value.transient
    # It is tried alone.
    session.deliver("Down", held[:1])
    session.confirm(1.0)
    assert broker.noted == [None, None]
    session.deliver("Up", _messages("Up"))
    session.confirm(1.0)


def test_broker_that_confirms_nothing_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(PublishResult.UNKNOWN, _LATE)
    monkeypatch.setattr(Broker, "note", lambda self, fault, **_: self.noted.append(fault))
    session = _session(monkeypatch, broker, None)
    session.deliver(session.resolve("Down"), _messages("Down"))

    session.confirm(1.0)

    assert broker.noted == [_LATE]
