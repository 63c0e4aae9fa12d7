"""What a broker's answers to a batch of publications mean for the messages. No I/O."""

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from duesweep.drivers.rabbitmq import (
    ACCESS_REFUSED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    ChannelClosedError,
    Publication,
    PublishResult,
)
from duesweep.errors import MessageError, QueueError, QueueNotFoundError, RefusedMessageError
from duesweep.queues.base import Confirmation
from duesweep.queues.rabbitmq.ladder import DELAY_HEADER

_TOO_LONG = re.compile(r"message size (\d+) is larger than")
_LADDER_BROKEN = "{} lets nothing into the delay ladder: run `duesweep rabbitmq delays verify`"
_ARE_ANSWERS = {
    PublishResult.CONFIRMED,
    PublishResult.REFUSED,
    PublishResult.RETURNED,
    PublishResult.UNSENDABLE,
}


@dataclass(frozen=True, slots=True)
class Sent:
    """A message's key, the endpoint that it is for, and how it was published."""

    key: str
    destination: str
    publication: Publication

    @property
    def is_delayed(self) -> bool:
        """Whether it went into the delay ladder."""
        return DELAY_HEADER in self.publication.headers


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known after a batch. `closed`: exchanges that take nothing now, and why. `missing`:
    endpoints that do not exist any more. `is_fruitful`: whether the broker answered anything.
    """

    confirmation: Confirmation
    closed: Mapping[str, str] = field(default_factory=dict)
    missing: AbstractSet[str] = frozenset()
    is_fruitful: bool = True


def answer_of(
    sent: Sequence[Sent],
    results: Sequence[PublishResult],
    fault: QueueError | None,
    culprits: Mapping[str, MessageError] | None = None,
) -> Answer:
    """What the results of publications, and what ended their channel, mean for the messages.

    `culprits`: the messages, by key, for which the broker closes the channel each time.
    """
    culprits = culprits or {}
    closed = _closed_exchanges(sent, fault)
    refused: dict[str, MessageError] = {}
    unconfirmed: set[str] = set()
    for one, result in zip(sent, results, strict=True):
        if result is PublishResult.CONFIRMED:
            continue
        if result is PublishResult.RETURNED and one.is_delayed:
            # Its level has lost a binding. That is not the message's fault.
            closed |= {one.publication.exchange: _LADDER_BROKEN.format(one.publication.exchange)}
        error = culprits.get(one.key) or _error(one, result, fault)
        if error is None:
            unconfirmed.add(one.key)
        else:
            refused[one.key] = error
    return Answer(
        Confirmation(refused, frozenset(unconfirmed)),
        closed,
        {one.destination for one in sent if isinstance(refused.get(one.key), QueueNotFoundError)},
        not unconfirmed or bool(refused) or any(result in _ARE_ANSWERS for result in results),
    )


def suspects(
    sent: Sequence[Sent], results: Sequence[PublishResult], fault: QueueError | None
) -> Sequence[Sent]:
    """The messages of which one or more may have made the broker close the channel. Empty if the
    broker says which it was.
    """
    says_which = not isinstance(fault, ChannelClosedError) or fault.code in {
        NOT_FOUND,
        ACCESS_REFUSED,
    }
    if says_which:
        return []
    open_results = {PublishResult.UNKNOWN, PublishResult.UNSENT}
    return [one for one, result in zip(sent, results, strict=True) if result in open_results]


def culprit_error(fault: QueueError) -> MessageError:
    """The error of a message that made the broker close the channel when it was alone on it."""
    return RefusedMessageError(f"RabbitMQ closes the channel when it gets this message: {fault}")


def _closed_exchanges(sent: Sequence[Sent], fault: QueueError | None) -> dict[str, str]:
    if not isinstance(fault, ChannelClosedError):
        return {}
    about = [one for one in sent if fault.is_about(one.publication.exchange)]
    if fault.code == ACCESS_REFUSED:
        return {one.publication.exchange: f"RabbitMQ: {fault}; grant it" for one in about}
    if fault.code == NOT_FOUND:
        levels = {one.publication.exchange for one in about if one.is_delayed}
        return {level: _LADDER_BROKEN.format(level) for level in levels}
    return {}


def _error(sent: Sent, result: PublishResult, fault: QueueError | None) -> MessageError | None:
    """The message's own fault. None if it has none; then nobody knows whether it arrived."""
    name = sent.destination
    if result is PublishResult.REFUSED:
        return RefusedMessageError(
            f"RabbitMQ refused the message for {name}: its queue may be full (x-max-length), or "
            "without a leader"
        )
    if result is PublishResult.UNSENDABLE:
        return RefusedMessageError(
            "AMQP cannot hold the message: the name of a header, or its id, type, content type, "
            "correlation id or reply address is over 255 bytes, or all headers are over 128 kB"
        )
    if result is PublishResult.RETURNED and not sent.is_delayed:
        return QueueNotFoundError(f"No queue on RabbitMQ takes messages for {name}")
    if result is PublishResult.UNKNOWN and isinstance(fault, ChannelClosedError):
        return _closing_error(sent, fault)
    return None


def _closing_error(sent: Sent, fault: ChannelClosedError) -> MessageError | None:
    """The error of the message for which the broker closed the channel; None for the others."""
    if fault.code == NOT_FOUND and fault.is_about(sent.publication.exchange):
        if sent.is_delayed:
            return None
        return QueueNotFoundError(f"There is no queue {sent.destination} on RabbitMQ: {fault}")
    too_long = _TOO_LONG.search(str(fault))
    if fault.code == PRECONDITION_FAILED and too_long:
        is_it = len(sent.publication.body) == int(too_long[1])
        return (
            RefusedMessageError(f"The message is too long for RabbitMQ: {fault}") if is_it else None
        )
    return None
