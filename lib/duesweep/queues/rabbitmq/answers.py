"""The meaning of a broker's answers to a batch of publications, and which messages make
it close the channel, if it does not name them.
"""

import re
from collections.abc import Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from duesweep.core.errors import (
    DestinationError,
    MessageError,
    QueueError,
    QueueNotFoundError,
    RefusedMessageError,
)
from duesweep.drivers.rabbitmq.errors import (
    ACCESS_REFUSED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    ChannelClosedError,
    UnansweredError,
)
from duesweep.drivers.rabbitmq.publisher import Publication, PublishResult
from duesweep.queues.base import Confirmation
from duesweep.queues.rabbitmq.link import Link
from duesweep.queues.rabbitmq.topology import DELAY_HEADER

_TOO_LONG = re.compile(r"message size (\d+) is larger than")
_LADDER_BROKEN = "{} lets nothing into the delay ladder: run `duesweep rabbitmq delays verify`"
_ARE_ANSWERS = {
    PublishResult.CONFIRMED,
    PublishResult.REFUSED,
    PublishResult.RETURNED,
    PublishResult.UNSENDABLE,
}
# How many copies are published together; after a closed channel, half as many.
_AT_ONCE = 50
_HARMLESS = {PublishResult.RETURNED, PublishResult.CONFIRMED, PublishResult.UNSENDABLE}


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
    """The facts after a batch. `closed`: exchanges that are unavailable now, by reason. `missing`:
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
    *,
    down: Container[str] = (),
) -> Answer:
    """The outcomes of messages by the results of publications and the end of their channel.

    `culprits`: the messages, by key, for which the broker closes the channel each time. `down`:
    endpoints whose queues are unavailable now: their messages have no fault.
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
        if error is None or one.destination in down:
            unconfirmed.add(one.key)
        else:
            refused[one.key] = error
    return Answer(
        Confirmation(refused, frozenset(unconfirmed)),
        closed,
        {one.destination for one in sent if isinstance(refused.get(one.key), QueueNotFoundError)},
        not unconfirmed or bool(refused) or any(result in _ARE_ANSWERS for result in results),
    )


def returned_by(sent: Sequence[Sent], results: Sequence[PublishResult]) -> AbstractSet[str]:
    """The endpoints whose messages no queue took, without ones that went into the delay ladder."""
    pairs = zip(sent, results, strict=True)
    return {
        one.destination
        for one, result in pairs
        if result is PublishResult.RETURNED and not one.is_delayed
    }


def silent_endpoints(
    sent: Sequence[Sent],
    results: Sequence[PublishResult],
    fault: QueueError | None,
    known: set[str],
) -> AbstractSet[str]:
    """The endpoints that answered none of their messages in time, if the broker answered all for
    others, or these endpoints were silent before; empty if it is the broker that is silent.

    `known` are the endpoints that were silent before. This updates it.
    """
    answered, silent = set[str](), set[str]()
    for one, result in zip(sent, results, strict=True):
        (answered if result in _ARE_ANSWERS else silent).add(one.destination)
    known -= answered
    if not isinstance(fault, UnansweredError) or answered & silent:
        return frozenset()
    if not answered and not silent <= known:
        return frozenset()
    known |= silent
    return silent


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
    """The message's own fault. None if it has none; then it is unknown whether it arrived."""
    name = sent.destination
    if result is PublishResult.REFUSED:
        return RefusedMessageError(
            f"RabbitMQ refused the message for {name}: its queue may be full (x-max-length), or "
            "without a leader",
            copy_may_pass=True,
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


class Probe:
    """Looks for culprits on a link, until `deadline` (of the link's clock) at the latest.

    A broker checks a message before it routes it. So a copy that is routed to no queue makes it
    close the channel as the message itself does, and no endpoint receives the copy.
    """

    def __init__(self, link: Link, deadline: float) -> None:
        self._link = link
        self._deadline = deadline

    def culprits(self, suspects: Sequence[Sent]) -> dict[str, MessageError]:
        """The culprits that were found, by key, each with its error."""
        found: dict[str, MessageError] = {}
        try:
            for start in range(0, len(suspects), _AT_ONCE):
                found |= self._find_among(suspects[start : start + _AT_ONCE])
        except (DestinationError, TimeoutError):
            # The others come again in the next batch.
            return found
        return found

    def _find_among(self, suspects: Sequence[Sent]) -> dict[str, MessageError]:
        closed = self._publish_copies(suspects)
        if closed is None:
            return {}
        if len(suspects) == 1:
            text = f"RabbitMQ closes the channel when it gets this message: {closed}"
            return {suspects[0].key: RefusedMessageError(text)}
        half = len(suspects) // 2
        return self._find_among(suspects[:half]) | self._find_among(suspects[half:])

    def _publish_copies(self, suspects: Sequence[Sent]) -> ChannelClosedError | None:
        """Publish copies to nowhere. The broker's error if it closes the channel, else None."""
        left = self._deadline - self._link.clock.seconds()
        if left <= 0:
            raise TimeoutError
        publisher = self._link.publisher()
        publisher.publish([replace(s.publication, exchange="", routing_key="") for s in suspects])
        publisher.wait(left)
        results = publisher.take_results()
        fault = publisher.fault
        # If this user may not publish to nowhere, the refusal says nothing about the message.
        if isinstance(fault, ChannelClosedError) and fault.code != ACCESS_REFUSED:
            return fault
        if not _HARMLESS.issuperset(results):
            raise TimeoutError
        return None
