"""Sends new messages to endpoints on RabbitMQ: at once, or later through the delay ladder.

brokers = Brokers(("amqps://sales:secret@broker.example/vhost",), "url")
message = OutgoingMessage({ENCLOSED_MESSAGE_TYPES: "Sales.Remind"}, body, delay=timedelta(days=2))
with open_sender(brokers, Style.CONVENTIONAL) as sender:
    message_id = sender.send("Billing", message)
"""

import uuid
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

from duesweep.core.duration import write_time_span
from duesweep.core.message import MESSAGE_ID, Message
from duesweep.core.store_clock import StoreClock
from duesweep.core.transport_message import TIME_TO_BE_RECEIVED, OutgoingMessage
from duesweep.drivers.rabbitmq import Brokers
from duesweep.errors import ConfigError, DestinationError, QueueError
from duesweep.queues.base import Destination
from duesweep.queues.rabbitmq.ladder import LONGEST_DELAY_SECONDS
from duesweep.queues.rabbitmq.link import Link, service_error
from duesweep.queues.rabbitmq.punctuality import Punctuality
from duesweep.queues.rabbitmq.session import LadderMissingError, RabbitMqQueueSession
from duesweep.queues.rabbitmq.topology import Style

_SECOND = timedelta(seconds=1)


class Prepared(NamedTuple):
    """A message as it is published, and how many seconds the delay ladder holds it; 0: none."""

    message: Message
    seconds: int


class RabbitMqSender:
    """One connection; not thread-safe. `open_sender` makes it."""

    def __init__(self, session: RabbitMqQueueSession, confirm_seconds: float) -> None:
        self._session = session
        self._confirm_seconds = confirm_seconds

    def send(self, name: str, message: OutgoingMessage) -> str:
        """Send a message to the endpoint `name`, and wait until the broker has confirmed it.
        Returns its id: that of its headers, or a new one.

        A delayed message enters the ladder only if the endpoint's queue exists and is bound to the
        ladder; a missing binding is made. It arrives after `message.delay`, never earlier.

        Raises `ConfigError` for a message or a broker that cannot be used, `QueueNotFoundError` or
        `UnreadableAddressError` for the name, `RefusedMessageError` if the broker refuses the
        message. After these, nothing was sent. After any other `QueueError`, it may have been sent.
        """
        prepared = prepare(name, message)
        closed_before = set(self._session.closed_exchanges)
        destination = self._session.resolve(name)
        self._publish(destination, prepared)
        confirmation = self._session.confirm(self._confirm_seconds)
        for error in confirmation.refused.values():
            raise error
        if confirmation.unconfirmed:
            self._raise_unconfirmed(name, closed_before)
        return prepared.message.key

    def _publish(self, destination: Destination, prepared: Prepared) -> None:
        if not prepared.seconds:
            self._session.deliver(destination, [prepared.message])
            return
        if prepared.seconds > self._session.longest_delay(destination):
            raise ConfigError(
                f"The name {destination} is too long for the delay ladder",
                advice="send the message without a delay",
            )
        try:
            # The message is due in so many seconds by a clock that shows 0.
            self._session.defer(destination, [prepared.message], StoreClock(0))
        except LadderMissingError as error:
            raise ConfigError(error.text, advice=error.advice) from error

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
def open_sender(brokers: Brokers, style: Style) -> Iterator[RabbitMqSender]:
    """A sender to endpoints of this topology, with one connection to the first broker that answers.

    Raises `ConfigError` for a setting that is wrong, `QueueError` if no broker answers.
    """
    link = Link(brokers, max_in_flight=1)
    try:
        try:
            link.connect()
        except DestinationError as error:
            raise service_error(error) from error
        session = RabbitMqQueueSession(link, style, "", Punctuality(is_wanted=False))
        yield RabbitMqSender(session, link.longest_wait_seconds)
    finally:
        link.close()


def prepare(name: str, message: OutgoingMessage) -> Prepared:
    """The message with an id, and its delay rounded up to seconds, as NServiceBus does.

    Raises `ConfigError` for a delay that the ladder cannot hold, or with a time to be received.
    """
    seconds = 0 if message.delay is None else -(-message.delay // _SECOND)
    if seconds > LONGEST_DELAY_SECONDS:
        raise ConfigError(
            f"The delay ladder cannot hold a message for {seconds:,} s",
            advice=f"give a delay of at most {LONGEST_DELAY_SECONDS:,} s, which is 8.5 years",
        )
    headers = dict(message.headers)
    headers[MESSAGE_ID] = message_id = headers.get(MESSAGE_ID) or str(uuid.uuid4())
    if message.delay is not None and headers.get(TIME_TO_BE_RECEIVED) is not None:
        raise ConfigError(
            f"A message with the header {TIME_TO_BE_RECEIVED} cannot have a delay: the transports "
            "refuse that",
            advice="leave one of the two out",
        )
    if message.time_to_be_received is not None:
        headers[TIME_TO_BE_RECEIVED] = write_time_span(message.time_to_be_received)
    due_us = seconds * 1_000_000
    return Prepared(
        Message(message_id, due_us, headers, "", message.body, name, instant_us=due_us), seconds
    )
