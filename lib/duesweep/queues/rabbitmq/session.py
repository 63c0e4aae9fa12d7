"""One task's way to endpoints on RabbitMQ."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from duesweep.core.message import Message
from duesweep.core.store_clock import StoreClock
from duesweep.drivers.rabbitmq import NOT_FOUND, ChannelClosedError, Publication, Publisher
from duesweep.errors import (
    DestinationError,
    MessageError,
    QueueNotFoundError,
    UnreadableAddressError,
)
from duesweep.queues.base import Confirmation, Destination
from duesweep.queues.rabbitmq import ladder
from duesweep.queues.rabbitmq.answers import Sent, answer_of, suspects
from duesweep.queues.rabbitmq.declare import bind, find
from duesweep.queues.rabbitmq.link import Link
from duesweep.queues.rabbitmq.probe import Probe
from duesweep.queues.rabbitmq.punctuality import Punctuality
from duesweep.queues.rabbitmq.topology import Binding, Kind, Style
from duesweep.queues.rabbitmq.wire import delayed_publication, direct_publication

_LONGEST_NAME = 255
# What failed before goes out when the others should be safe: a channel that is closed over it would
# leave those in doubt again.
_LATER_SECONDS = 0.5
_SETUP = "run `duesweep rabbitmq delays create`"


class LadderMissingError(DestinationError):
    """Nothing can be deferred before it is due."""


class RabbitMqQueueSession:
    """Publishes at once and learns what became of it in `confirm`, thousands in flight."""

    def __init__(self, link: Link, style: Style, own_queue: str, punctuality: Punctuality) -> None:
        self._link = link
        self._punctuality = punctuality
        self._has_deferred = False
        self._style = style
        self._own_queue = own_queue
        self._found: set[str] = set()
        self._in_ladder: set[str] = set()
        # Why exchanges take nothing now.
        self._closed: dict[str, str] = {}
        self._sent: list[Sent] = []
        self._publisher: Publisher | None = None

    def resolve(self, address: str | None) -> str:
        """The endpoint's name, where its exchange (direct topology: its queue) is there."""
        name = self._own_queue if address is None else address
        if not 0 < _length(name) <= _LONGEST_NAME:
            raise UnreadableAddressError(f"{name!r} is no name of a queue on RabbitMQ")
        if name not in self._found:
            self._find(Kind.QUEUE if self._style is Style.DIRECT else Kind.EXCHANGE, name)
            self._found.add(name)
        return name

    def longest_delay(self, destination: Destination) -> int:
        """What the ladder's 28 levels hold, where its routing keys have room for the endpoint."""
        key = ladder.routing_key(0, str(destination))
        return ladder.LONGEST_DELAY_SECONDS if _length(key) <= _LONGEST_NAME else 0

    def deliver(
        self, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        """Publish to the endpoint."""
        name = str(destination)
        self._publish(
            name,
            messages,
            [direct_publication(one, self._style, name) for one in messages],
            [_LATER_SECONDS if one.attempts else 0.0 for one in messages],
        )
        return {}

    def defer(
        self, destination: Destination, messages: Sequence[Message], clock: StoreClock
    ) -> dict[str, MessageError]:
        """Publish into the delay ladder, which brings them to the endpoint when they are due."""
        name = str(destination)
        self._enter_ladder(name)
        entries = [
            self._punctuality.entry(clock.microseconds_until(message)) for message in messages
        ]
        publications = [
            delayed_publication(message, name, entry.seconds)
            if entry.seconds
            else direct_publication(message, self._style, name)
            for message, entry in zip(messages, entries, strict=True)
        ]
        self._publish(name, messages, publications, [entry.hold_seconds for entry in entries])
        self._has_deferred = True
        return {}

    def confirm(self, seconds: float) -> Confirmation:
        """Wait for the broker's answers to all that was published since the last time."""
        publisher = self._publisher
        if publisher is None:
            return Confirmation()
        seconds = min(seconds, self._link.longest_wait_seconds)
        deadline = time.monotonic() + seconds
        publisher.wait(seconds)
        results = publisher.take_results()
        culprits: dict[str, MessageError] = {}
        if found := suspects(self._sent, results, publisher.fault):
            culprits = Probe(self._link, deadline).culprits(found)
        answer = answer_of(self._sent, results, publisher.fault, culprits)
        self._publisher, self._sent = None, []
        if self._has_deferred:
            self._punctuality.end_batch()
            self._has_deferred = False
        self._closed |= answer.closed
        self._found -= answer.closed.keys() | answer.missing
        self._in_ladder -= answer.missing
        self._link.note(publisher.fault, is_fruitful=answer.is_fruitful)
        return answer.confirmation

    def commit(self) -> None:
        """Nothing is left to do: what was confirmed is durable."""

    def rollback(self) -> None:
        """Nothing can be taken back; its answers are nobody's any more."""
        if self._publisher is not None:
            self._publisher.take_results()
        self._publisher, self._sent, self._has_deferred = None, [], False

    def find_ladder(self) -> None:
        """Raise `LadderMissingError` where the broker has no delay ladder."""
        try:
            self._find(Kind.EXCHANGE, ladder.DELIVERY_EXCHANGE)
        except QueueNotFoundError as error:
            raise LadderMissingError("The broker has no delay ladder", advice=_SETUP) from error

    def _publish(
        self,
        name: str,
        messages: Sequence[Message],
        publications: Sequence[Publication],
        hold_seconds: Sequence[float] = (),
    ) -> None:
        # Until its results are told, a batch keeps to one publisher, though that may have ended.
        publisher = self._publisher or self._link.publisher()
        shut = next((p.exchange for p in publications if p.exchange in self._closed), None)
        if shut is not None:
            raise DestinationError(self._closed[shut])
        publisher.publish(publications, hold_seconds)
        self._publisher = publisher
        self._sent += [
            Sent(message.key, name, one)
            for message, one in zip(messages, publications, strict=True)
        ]

    def _enter_ladder(self, name: str) -> None:
        """See to it that the ladder can let a message out again: one that it cannot would hold up
        everybody's on its level (NServiceBus.RabbitMQ#1407).
        """
        if name in self._in_ladder:
            return
        self.find_ladder()
        self._find(Kind.QUEUE, name)
        for binding in ladder.way_out(self._style, name):
            self._ask(name, partial(self._bind, binding))
        self._in_ladder.add(name)

    def _bind(self, binding: Binding) -> None:
        bind(self._link.channel, binding)

    def _find(self, kind: Kind, name: str) -> None:
        self._ask(name, lambda: find(self._link.channel, kind, name))

    def _ask(self, name: str, ask: Callable[[], Any]) -> None:
        try:
            self._link.ask(ask)
        except ChannelClosedError as error:
            if error.code == NOT_FOUND:
                raise QueueNotFoundError(
                    f"There is no queue {name} on RabbitMQ: {error}"
                ) from error
            raise DestinationError(f"{name} on RabbitMQ cannot be used: {error}") from error


def _length(name: str) -> int:
    """Bytes in AMQP; 0 where it cannot be written there."""
    try:
        return len(name.encode())
    except UnicodeEncodeError:
        return 0
