"""Endpoints on RabbitMQ as queues: a task's session with them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from duesweep.core.errors import (
    ConfigError,
    DestinationError,
    MessageError,
    QueueNotFoundError,
    RefusedMessageError,
)
from duesweep.core.message import Message
from duesweep.core.world import StoreClock, World
from duesweep.drivers.rabbitmq.connection import Brokers, Channel
from duesweep.drivers.rabbitmq.errors import NOT_FOUND, ChannelClosedError
from duesweep.drivers.rabbitmq.publisher import Publication, Publisher
from duesweep.queues.base import Confirmation, Destination, Queue, QueueSession
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.answers import (
    Probe,
    Sent,
    answer_of,
    returned_by,
    silent_endpoints,
    suspects,
)
from duesweep.queues.rabbitmq.link import Link, service_error
from duesweep.queues.rabbitmq.topology import Kind, Style
from duesweep.queues.rabbitmq.wire import (
    Punctuality,
    delayed_publication,
    direct_publication,
)
from duesweep.stores.base import DriverSession
from duesweep.stores.task import TaskSession

# Messages that failed before, and very long ones, are published later. If the broker closes the
# channel because of one, the others are confirmed by then.
_LATER_SECONDS = 0.5
# From RabbitMQ 4.0 on a broker takes 16 MiB by default, and an administrator may set less.
_LONG_BYTES = 4_000_000
_SETUP = "run `duesweep rabbitmq delays create`"


class LadderMissingError(DestinationError):
    """There is no delay ladder, so no early message can be deferred."""

    stored_name = "duesweep.queues.rabbitmq.session.LadderMissingError"


@dataclass(frozen=True, slots=True)
class RabbitMqQueue(Queue):
    """Endpoints of a vhost. Delivers at least once: confirmed messages cannot be taken back.

    `needs_ladder`: early messages are deferred. `is_punctual`: the first of them arrive at the
    moment when they are due. `holds_own_queue`: the endpoint's own queue has to exist.
    """

    brokers: Brokers
    style: Style
    own_queue: str
    max_in_flight: int
    needs_ladder: bool = False
    is_punctual: bool = False
    holds_own_queue: bool = True
    world: World = field(default_factory=World)

    @property
    def shares_transaction(self) -> bool:
        return False

    @property
    def longest_delay(self) -> int:
        return topology.LONGEST_DELAY_SECONDS

    @contextmanager
    def open(self, store: TaskSession) -> Iterator["RabbitMqQueueSession"]:  # noqa: ARG002 - apart
        """A session with one connection, for all batches of a task."""
        with closing(self._link()) as link:
            # Connect before anything is claimed. If it fails, each destination reports why.
            with suppress(DestinationError):
                link.connect()
            yield self._session(link)

    def check(self, error_queue: str | None, store: DriverSession) -> None:  # noqa: ARG002 - apart
        """Connect, and check that the endpoint's own queue, the error queue and the delay ladder
        exist, as far as they are needed.

        Raises `ConfigError` or `QueueError`.
        """
        try:
            with closing(self._link()) as link:
                link.connect()
                session = self._session(link)
                if self.needs_ladder:
                    session.find_ladder()
                if self.holds_own_queue:
                    self._check_own_queue(session)
                if error_queue is not None:
                    session.resolve(error_queue)
        except LadderMissingError as error:
            raise ConfigError(
                f"{self.brokers.setting}: {error.text}", advice=error.advice
            ) from error
        except DestinationError as error:
            raise service_error(error) from error
        except MessageError as error:
            raise ConfigError(
                f"retry.error_queue: {error}", advice="correct the setting"
            ) from error

    def _link(self) -> Link:
        return Link(self.brokers, self.max_in_flight, self.world.clock)

    def _session(self, link: Link) -> "RabbitMqQueueSession":
        punctuality = Punctuality(is_wanted=self.is_punctual)
        return RabbitMqQueueSession(link, self.style, self.own_queue, punctuality)

    def _check_own_queue(self, session: "RabbitMqQueueSession") -> None:
        try:
            session.resolve(None)
        except MessageError as error:
            # On a wrong vhost, every message would fail and be exhausted in the end.
            raise ConfigError(
                f"{self.brokers.setting}.url: no endpoint {self.own_queue} on this broker: {error}",
                advice="check its vhost, or create the endpoint",
            ) from error


class RabbitMqQueueSession(QueueSession):
    """Publishes without waiting, with thousands in flight. `confirm` returns their outcomes."""

    def __init__(self, link: Link, style: Style, own_queue: str, punctuality: Punctuality) -> None:
        self._link = link
        self._punctuality = punctuality
        self._has_deferred = False
        self._style = style
        self._own_queue = own_queue
        self._found: set[str] = set()
        self._in_ladder: set[str] = set()
        # Exchanges that are unavailable now, with the reason.
        self._closed: dict[str, str] = {}
        # Why the next delivery to an endpoint is not sent: its queue did not take the last one.
        self._down: dict[str, DestinationError] = {}
        self._sent: list[Sent] = []
        self._publisher: Publisher | None = None

    def resolve(self, address: str | None) -> str:
        """The endpoint's name. Its exchange has to exist (direct topology: its queue).

        Raises `UnreadableAddressError`, `QueueNotFoundError` or `DestinationError`.
        """
        name = topology.checked_name(self._own_queue if address is None else address)
        if name not in self._found:
            self._find(Kind.QUEUE if self._style is Style.DIRECT else Kind.EXCHANGE, name)
            self._found.add(name)
        return name

    def longest_delay(self, destination: Destination) -> int:
        """The ladder's longest delay, in seconds; 0 if the endpoint's name is too long for it."""
        key = topology.routing_key(0, str(destination))
        is_short = topology.byte_length(key) <= topology.LONGEST_NAME
        return topology.LONGEST_DELAY_SECONDS if is_short else 0

    def deliver(
        self, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        """Publish messages to the endpoint. Returns the errors of messages that the broker would
        refuse, which are not sent; `confirm` returns the others.
        """
        name = str(destination)
        if (down := self._down.pop(name, None)) is not None:
            raise down
        return self._publish(
            name,
            messages,
            lambda one: (direct_publication(one, self._style, name), _hold_seconds(one)),
        )

    def defer(
        self, destination: Destination, messages: Sequence[Message], clock: StoreClock
    ) -> dict[str, MessageError]:
        """Publish messages into the delay ladder, which delivers them when they are due."""
        name = str(destination)
        self._enter_ladder(name)

        def made(message: Message) -> tuple[Publication, float]:
            seconds, hold = self._punctuality.seconds_and_hold(clock.microseconds_until(message))
            if seconds:
                return delayed_publication(message, name, seconds), hold
            return direct_publication(message, self._style, name), hold

        refused = self._publish(name, messages, made)
        self._has_deferred = True
        return refused

    def confirm(self, seconds: float) -> Confirmation:
        """Wait at most `seconds` for the broker's answers to all publications since the last."""
        publisher = self._publisher
        if publisher is None:
            return Confirmation()
        seconds = min(seconds, self._link.longest_wait_seconds)
        deadline = self._link.clock.seconds() + seconds
        publisher.wait(seconds)
        results = publisher.take_results()
        culprits: dict[str, MessageError] = {}
        if found := suspects(self._sent, results, publisher.fault):
            culprits = Probe(self._link, deadline).culprits(found)
        silent = silent_endpoints(self._sent, results, publisher.fault, self._link.silent)
        for name in silent:
            text = f"{name} on RabbitMQ is unavailable, and others are not: {publisher.fault}"
            self._down[name] = DestinationError(text, transient=False)
        down = [name for name in returned_by(self._sent, results) if self._is_down(name)]
        answer = answer_of(self._sent, results, publisher.fault, culprits, down=down)
        self._publisher, self._sent = None, []
        if self._has_deferred:
            self._punctuality.end_batch()
            self._has_deferred = False
        self._closed |= answer.closed
        self._found -= answer.closed.keys() | answer.missing
        self._in_ladder -= answer.missing
        if silent:
            self._link.note(None, is_fruitful=True)
        else:
            self._link.note(publisher.fault, is_fruitful=answer.is_fruitful)
        return answer.confirmation

    def rollback(self) -> None:
        """Forget the publications since the last `confirm`. They cannot be taken back."""
        if self._publisher is not None:
            self._publisher.take_results()
        self._publisher, self._sent, self._has_deferred = None, [], False

    @property
    def closed_exchanges(self) -> Mapping[str, str]:
        """The exchanges that are unavailable now, with the reason."""
        return self._closed

    def find_ladder(self) -> None:
        """Raise `LadderMissingError` if the broker has no delay ladder."""
        try:
            self._find(Kind.EXCHANGE, topology.DELIVERY_EXCHANGE)
        except QueueNotFoundError as error:
            raise LadderMissingError("The broker has no delay ladder", advice=_SETUP) from error

    def _publish(
        self,
        name: str,
        messages: Sequence[Message],
        make: Callable[[Message], tuple[Publication, float]],
    ) -> dict[str, MessageError]:
        """Publish what `make` makes of each message: a publication, and for how many seconds to
        hold it. Returns the errors of messages of which it makes none.
        """
        made: list[Sent] = []
        hold_seconds: list[float] = []
        refused: dict[str, MessageError] = {}
        for message in messages:
            try:
                publication, seconds = make(message)
            except RefusedMessageError as error:
                refused[message.key] = error
                continue
            made.append(Sent(message.key, name, publication))
            hold_seconds.append(seconds)
        # A batch uses one publisher until `confirm`, even if that publisher has ended.
        publisher = self._publisher or self._link.publisher()
        exchanges = (one.publication.exchange for one in made)
        closed_exchange = next((each for each in exchanges if each in self._closed), None)
        if closed_exchange is not None:
            raise DestinationError(self._closed[closed_exchange], transient=False)
        publisher.publish([one.publication for one in made], hold_seconds)
        self._publisher = publisher
        self._sent += made
        return refused

    def _enter_ladder(self, name: str) -> None:
        """Bind the endpoint to the ladder. A message that cannot leave the ladder would block all
        messages of its level (NServiceBus.RabbitMQ#1407).
        """
        if name in self._in_ladder:
            return
        self.find_ladder()
        self._find(Kind.QUEUE, name)
        for binding in topology.way_out(self._style, name):
            self._ask(name, partial(topology.bind, binding=binding))
        self._in_ladder.add(name)

    def _is_down(self, name: str) -> bool:
        """Whether an endpoint has a queue that is unavailable now."""
        with suppress(QueueNotFoundError):
            try:
                self._find(Kind.QUEUE, name)
            except DestinationError as error:
                self._down[name] = error
        return name in self._down

    def _find(self, kind: Kind, name: str) -> None:
        self._ask(name, partial(topology.find, kind=kind, name=name))

    def _ask(self, name: str, ask: Callable[[Channel], None]) -> None:
        try:
            self._link.ask(lambda: ask(self._link.channel))
        except ChannelClosedError as error:
            if error.is_missing:
                raise QueueNotFoundError(
                    f"There is no queue {name} on RabbitMQ: {error}"
                ) from error
            raise DestinationError(
                f"{name} on RabbitMQ cannot be used: {error}", transient=error.code == NOT_FOUND
            ) from error


def _hold_seconds(message: Message) -> float:
    may_be_refused = message.attempts or message.body_bytes > _LONG_BYTES
    return _LATER_SECONDS if may_be_refused else 0.0
