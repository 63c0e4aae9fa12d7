"""A task's session with endpoints on RabbitMQ."""

import time
from collections.abc import Callable, Mapping, Sequence
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
from duesweep.queues.base import Confirmation, Destination, QueueSession
from duesweep.queues.rabbitmq import ladder
from duesweep.queues.rabbitmq.answers import Sent, answer_of, suspects
from duesweep.queues.rabbitmq.declare import bind, find
from duesweep.queues.rabbitmq.link import Link
from duesweep.queues.rabbitmq.probe import Probe
from duesweep.queues.rabbitmq.punctuality import Punctuality
from duesweep.queues.rabbitmq.topology import Binding, Kind, Style
from duesweep.queues.rabbitmq.wire import delayed_publication, direct_publication

_LONGEST_NAME = 255
# A broker removes them where it looks for a name: it would find another queue, or itself.
_LINE_ENDS = frozenset("\r\n")
# Messages that failed before are published later. If the broker closes the channel because of one,
# the others are confirmed by then.
_LATER_SECONDS = 0.5
_SETUP = "run `duesweep rabbitmq delays create`"


class LadderMissingError(DestinationError):
    """There is no delay ladder, so no early message can be deferred."""

    stored_name = "duesweep.queues.rabbitmq.session.LadderMissingError"


class RabbitMqQueueSession(QueueSession):
    """Publishes without waiting, with thousands in flight. `confirm` says what became of them."""

    def __init__(self, link: Link, style: Style, own_queue: str, punctuality: Punctuality) -> None:
        self._link = link
        self._punctuality = punctuality
        self._has_deferred = False
        self._style = style
        self._own_queue = own_queue
        self._found: set[str] = set()
        self._in_ladder: set[str] = set()
        # Exchanges that take nothing now, and why.
        self._closed: dict[str, str] = {}
        self._sent: list[Sent] = []
        self._publisher: Publisher | None = None

    def resolve(self, address: str | None) -> str:
        """The endpoint's name. Its exchange has to exist (direct topology: its queue).

        Raises `UnreadableAddressError`, `QueueNotFoundError` or `DestinationError`.
        """
        name = self._own_queue if address is None else address
        if not 0 < _byte_length(name) <= _LONGEST_NAME or not _LINE_ENDS.isdisjoint(name):
            raise UnreadableAddressError(f"{name!r} cannot be the name of a queue on RabbitMQ")
        if name not in self._found:
            self._find(Kind.QUEUE if self._style is Style.DIRECT else Kind.EXCHANGE, name)
            self._found.add(name)
        return name

    def longest_delay(self, destination: Destination) -> int:
        """The ladder's longest delay, in seconds; 0 if the endpoint's name is too long for it."""
        key = ladder.routing_key(0, str(destination))
        return ladder.LONGEST_DELAY_SECONDS if _byte_length(key) <= _LONGEST_NAME else 0

    def deliver(
        self, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        """Publish messages to the endpoint. Returns no errors: `confirm` does."""
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
        """Publish messages into the delay ladder, which delivers them when they are due."""
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
        """Wait at most so long for the broker's answers to all publications since the last call."""
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

    def rollback(self) -> None:
        """Forget the publications since the last `confirm`. They cannot be taken back."""
        if self._publisher is not None:
            self._publisher.take_results()
        self._publisher, self._sent, self._has_deferred = None, [], False

    @property
    def closed_exchanges(self) -> Mapping[str, str]:
        """The exchanges that take nothing now, and why."""
        return self._closed

    def find_ladder(self) -> None:
        """Raise `LadderMissingError` if the broker has no delay ladder."""
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
        # A batch uses one publisher until `confirm`, even if that publisher has ended.
        publisher = self._publisher or self._link.publisher()
        closed_exchange = next(
            (p.exchange for p in publications if p.exchange in self._closed), None
        )
        if closed_exchange is not None:
            raise DestinationError(self._closed[closed_exchange], transient=False)
        publisher.publish(publications, hold_seconds)
        self._publisher = publisher
        self._sent += [
            Sent(message.key, name, one)
            for message, one in zip(messages, publications, strict=True)
        ]

    def _enter_ladder(self, name: str) -> None:
        """Bind the endpoint to the ladder. A message that cannot leave the ladder would block all
        messages of its level (NServiceBus.RabbitMQ#1407).
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
            raise DestinationError(
                f"{name} on RabbitMQ cannot be used: {error}", transient=False
            ) from error


def _byte_length(name: str) -> int:
    """The length in bytes; 0 for a name that is not valid in UTF-8."""
    try:
        return len(name.encode())
    except UnicodeEncodeError:
        return 0
