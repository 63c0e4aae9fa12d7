"""A sender of single messages to endpoints on RabbitMQ, now or through the delay ladder.

brokers = Brokers(("amqps://sales:secret@broker.example/vhost",), "url")
message = OutgoingMessage({ENCLOSED_MESSAGE_TYPES: "Sales.Remind"}, body, delay=timedelta(days=2))
with open_sender(brokers, Style.CONVENTIONAL) as sender:
    message_id = sender.send("Billing", message)
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from datetime import timedelta

from duesweep.core.errors import ConfigError, DestinationError, MessageError, QueueError
from duesweep.core.message import MESSAGE_ID, TIME_TO_BE_RECEIVED, Message
from duesweep.core.world import StoreClock, World
from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.queues.base import Destination
from duesweep.queues.rabbitmq.link import Link, service_error
from duesweep.queues.rabbitmq.session import LadderMissingError, RabbitMqQueueSession
from duesweep.queues.rabbitmq.topology import LONGEST_DELAY_SECONDS, Style
from duesweep.queues.rabbitmq.wire import Punctuality
from duesweep_transport.values import OutgoingMessage, write_time_span

_SECOND = timedelta(seconds=1)
_SECOND_US = 1_000_000


class RabbitMqSender:
    """One connection; not thread-safe. `open_sender` makes it."""

    def __init__(self, session: RabbitMqQueueSession, confirm_seconds: float, world: World) -> None:
        self._session = session
        self._world = world
        self._confirm_seconds = confirm_seconds

    def send(self, name: str, message: OutgoingMessage) -> str:
        """Send a message to the endpoint `name`, and wait until the broker has confirmed it.
        Returns its id: from its headers, or a new one.

        A delayed message enters the ladder only if the endpoint's queue exists and is bound to the
        ladder; a missing binding is made. It arrives after `message.delay`, never earlier.

        Raises `ConfigError` for a message or a broker that cannot be used, `QueueNotFoundError` or
        `UnreadableAddressError` for the name, `RefusedMessageError` if the broker refuses the
        message. After these, nothing was sent. After any other `QueueError`, it may have been sent.
        """
        prepared = prepare(name, message, self._world)
        closed_before = set(self._session.closed_exchanges)
        refused = self._publish(self._session.resolve(name), prepared)
        confirmation = self._session.confirm(self._confirm_seconds)
        for error in (*refused.values(), *confirmation.refused.values()):
            raise error
        if confirmation.unconfirmed:
            self._raise_unconfirmed(name, closed_before)
        return prepared.key

    def _publish(self, destination: Destination, message: Message) -> Mapping[str, MessageError]:
        if not message.due_us:
            return self._session.deliver(destination, [message])
        if not self._session.longest_delay(destination):
            raise ConfigError(
                f"The name {destination} is too long for the delay ladder",
                advice="send the message without a delay",
            )
        try:
            return self._session.defer(destination, [message], StoreClock(0))
        except LadderMissingError as error:
            raise ConfigError.of(error.problem) from error

    def _raise_unconfirmed(self, name: str, closed_before: AbstractSet[str]) -> None:
        for exchange, reason in self._session.closed_exchanges.items():
            if exchange not in closed_before:
                raise ConfigError(f"The message for {name} was not sent: {reason}")
        raise QueueError(
            f"RabbitMQ has not confirmed the message for {name}: it may have arrived or not",
            transient=True,
            advice="look whether it is there before you send it again",
        )


@contextmanager
def open_sender(
    brokers: Brokers, style: Style, world: World | None = None
) -> Iterator[RabbitMqSender]:
    """A sender to endpoints of this topology, with one connection to the first broker that answers.

    Raises `ConfigError` for a setting that is wrong, `QueueError` if no broker answers.
    """
    world = world or World()
    with closing(Link(brokers, 1, world.clock)) as link:
        try:
            link.connect()
        except DestinationError as error:
            raise service_error(error) from error
        session = RabbitMqQueueSession(link, style, "", Punctuality(is_wanted=False))
        yield RabbitMqSender(session, link.longest_wait_seconds, world)


def prepare(name: str, message: OutgoingMessage, world: World) -> Message:
    """The message with an id, by a clock that shows 0: it is due after its delay, which is rounded
    up to seconds, as NServiceBus does.

    Raises `ConfigError` for a delay that the ladder cannot hold, or with a time to be received.
    """
    seconds = 0 if message.delay is None else -(-message.delay // _SECOND)
    if seconds > LONGEST_DELAY_SECONDS:
        raise ConfigError(
            f"The delay ladder cannot hold a message for {seconds:,} s",
            advice=f"give a delay of at most {LONGEST_DELAY_SECONDS:,} s, which is 8.5 years",
        )
    headers = dict(message.headers)
    headers[MESSAGE_ID] = message_id = headers.get(MESSAGE_ID) or str(world.new_id())
    if message.delay is not None and headers.get(TIME_TO_BE_RECEIVED) is not None:
        raise ConfigError(
            f"A message with the header {TIME_TO_BE_RECEIVED} cannot have a delay: the transports "
            "refuse that",
            advice="leave one of the two out",
        )
    if message.time_to_be_received is not None:
        headers[TIME_TO_BE_RECEIVED] = write_time_span(message.time_to_be_received)
    due_us = seconds * _SECOND_US
    return Message(message_id, due_us, headers, "", message.body, name, instant_us=due_us)
