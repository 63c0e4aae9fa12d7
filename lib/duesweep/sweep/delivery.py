"""Delivers a batch's messages to their destinations, and finds out the outcome of each.

An unavailable destination is not used until its breaker lets one message try it. A message
that may have arrived or not is released: the slice claims and delivers it again.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import NamedTuple

from duesweep.core.errors import (
    DestinationError,
    MessageError,
    TransactionLostError,
)
from duesweep.core.message import (
    Delivered,
    Faulty,
    Message,
    Outcome,
    Stays,
    Why,
    outcomes_of,
    staying,
)
from duesweep.core.policy import CLAIM_SECONDS
from duesweep.core.world import Clock, StoreClock
from duesweep.queues.base import Destination, QueueSession
from duesweep.sweep.destinations import Destinations

# The queue gets at least this long to answer, even if the batch has used up its time.
_LEAST_ANSWER_SECONDS = 1.0


class ErrorCopies(NamedTuple):
    """The answer of the error queue, whose name is `queue`: the keys of messages that `arrived`,
    and the errors of messages that it `refused` for good, by key. It is unavailable to all others.
    """

    queue: str | None = None
    arrived: Collection[str] = ()
    refused: Mapping[str, MessageError] = MappingProxyType({})


class SliceDelivery:
    """Delivers the messages of one slice; `destinations` know which of them may get messages."""

    def __init__(self, queue: QueueSession, clock: Clock, destinations: Destinations) -> None:
        self._queue = queue
        self._clock = clock
        self._destinations = destinations
        # By address: why it leads to no queue. With thousands of destinations, to ask again in each
        # batch could be a query a message.
        self._missing: dict[str | None, MessageError] = {}

    def deliver_all(self, messages: Sequence[Message], store_clock: StoreClock) -> list[Outcome]:
        """Deliver each message to its destination, or defer it there if it is not due yet. Messages
        for destinations that are not reached within a claim's time are released. A destination that
        is tried gets one message, and takes the others in a later batch.
        """
        deadline = self._clock.seconds() + CLAIM_SECONDS
        unreadable, groups = group_by_destination(messages)
        outcomes: list[Outcome] = [
            Stays(one.message, Why.EARLY) if store_clock.seconds_until(one.message) else one
            for one in unreadable
        ]
        for address in self._destinations.in_turn(groups):
            group, room = groups[address], self._destinations.room(address)
            if self._clock.seconds() > deadline and any(map(_is_answered, outcomes)):
                outcomes += staying(group, Why.UNREACHED)
            elif room is None:
                outcomes += self._deliver_group(address, group, store_clock)
            elif room:
                tried, waiting = _one_that_is_due(group, store_clock)
                outcomes += staying(waiting, Why.BLOCKED)
                outcomes += self._deliver_group(address, tried, store_clock)
            else:
                outcomes += staying(group, Why.BLOCKED)
        outcomes = self._confirmed(outcomes, deadline)
        self._note_success(outcomes)
        return outcomes

    def deliver_error_messages(self, address: str, messages: Sequence[Message]) -> "ErrorCopies":
        """Deliver messages to the error queue, and wait for its answer."""
        if not self._destinations.is_due(address):
            return ErrorCopies()
        began = self._clock.seconds()
        try:
            destination = self._queue.resolve(address)
            refused = self._try_deliver(address, destination, messages)
        except (DestinationError, MessageError) as error:
            self._note_failure(address, error, began)
            return ErrorCopies()
        answer = self._queue.confirm(CLAIM_SECONDS)
        refused = {**refused, **answer.refused}
        missing = {*refused, *answer.unconfirmed}
        arrived = frozenset(m.key for m in messages if m.key not in missing)
        passing: MessageError | DestinationError | None
        passing = next((error for error in refused.values() if error.copy_may_pass), None)
        if answer.unconfirmed and passing is None:
            passing = DestinationError(f"{destination} has not confirmed messages")
        if passing is not None and not arrived:
            self._note_failure(address, passing, began)
        else:
            self._destinations.succeed(address)
        lasting = {key: error for key, error in refused.items() if not error.copy_may_pass}
        return ErrorCopies(str(destination), arrived, lasting)

    def _deliver_group(
        self, address: str | None, group: Sequence[Message], store_clock: StoreClock
    ) -> list[Outcome]:
        """Deliver or defer messages with one destination."""
        waits = store_clock.waits(group)
        due = [message for message in group if message.key not in waits]
        early = [message for message in group if message.key in waits]
        began = self._clock.seconds()
        try:
            destination = self._resolve(address)
            refused = self._try_deliver(address, destination, due) if due else {}
        except DestinationError as error:
            self._note_failure(address, error, began)
            return staying(group, Why.BLOCKED)
        except MessageError as error:
            return [Faulty(message, error) for message in due] + staying(early, Why.EARLY)
        queue = str(destination)
        outcomes = outcomes_of([Delivered(m, queue) for m in due], refused)
        if early:
            longest = self._queue.longest_delay(destination)
            too_early = [message for message in early if waits[message.key] > longest]
            in_reach = [message for message in early if waits[message.key] <= longest]
            outcomes += staying(too_early, Why.EARLY)
            outcomes += self._defer(address, destination, in_reach, store_clock)
        return outcomes

    def _defer(
        self,
        address: str | None,
        destination: Destination,
        early: Sequence[Message],
        store_clock: StoreClock,
    ) -> list[Outcome]:
        """Defer messages that are not due yet. If that fails, the destination is not blocked:
        it still takes due messages, and may have taken some already.
        """
        if not early:
            return []
        if address in self._destinations.cannot_defer:
            return staying(early, Why.LEFT)
        try:
            refused = self._queue.defer(destination, early, store_clock)
        except DestinationError as error:
            self._destinations.cannot_defer[address] = str(error)
            return staying(early, Why.LEFT)
        except MessageError:
            return staying(early, Why.EARLY)
        queue = str(destination)
        sent = [Delivered(m, queue, is_deferred=True) for m in early]
        return outcomes_of(sent, refused)

    def _resolve(self, address: str | None) -> Destination:
        if address in self._missing:
            # A copy: an error that is raised keeps the frames that it passes, with their messages.
            raise copy(self._missing[address])
        try:
            return self._queue.resolve(address)
        except MessageError as error:
            self._missing[address] = copy(error)
            raise

    def _try_deliver(
        self, address: str | None, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        try:
            return self._queue.deliver(destination, messages)
        except TransactionLostError as error:
            # When the batch is claimed again, it leaves this destination out.
            if error.destination_is_at_fault:
                self._destinations.fail(address, str(error), took_seconds=0, is_lasting=True)
            raise

    def _note_failure(
        self, address: str | None, error: DestinationError | MessageError, began: float
    ) -> None:
        self._destinations.fail(
            address,
            str(error),
            took_seconds=self._clock.seconds() - began,
            is_lasting=isinstance(error, MessageError) or not error.transient,
        )

    def _note_success(self, outcomes: Iterable[Outcome]) -> None:
        """A destination that is tried takes messages again if it took one, or refused it for the
        message's own fault.
        """
        if self._destinations.all_closed:
            return
        for one in filter(_is_answered, outcomes):
            self._destinations.succeed(one.message.destination)

    def _confirmed(self, outcomes: list[Outcome], deadline: float) -> list[Outcome]:
        """Wait for the queue's answers, and correct the outcomes by them."""
        if not any(isinstance(one, Delivered) for one in outcomes):
            return outcomes
        answer = self._queue.confirm(max(_LEAST_ANSWER_SECONDS, deadline - self._clock.seconds()))
        if not (answer.refused or answer.unconfirmed):
            return outcomes
        sent = [one for one in outcomes if isinstance(one, Delivered)]
        others = [one for one in outcomes if not isinstance(one, Delivered)]
        unknown = [one.message for one in sent if one.message.key in answer.unconfirmed]
        certain = [one for one in sent if one.message.key not in answer.unconfirmed]
        return [*others, *staying(unknown, Why.RELEASED), *outcomes_of(certain, answer.refused)]


def _is_answered(one: Outcome) -> bool:
    """Whether its destination has taken the message, or has refused it for the message's fault."""
    return isinstance(one, (Delivered, Faulty))


def _one_that_is_due(
    group: list[Message], store_clock: StoreClock
) -> tuple[list[Message], list[Message]]:
    """The message that tries a destination, and the others. One that is not due yet says nothing of
    the destination; if none is due, all are as good as one.
    """
    waits = store_clock.waits(group)
    first = next((message for message in group if message.key not in waits), None)
    if first is None:
        return group, []
    return [first], [message for message in group if message is not first]


def group_by_destination(
    messages: Iterable[Message],
) -> tuple[list[Faulty], dict[str | None, list[Message]]]:
    """Separate messages that cannot be read from the others, and group those by destination."""
    unreadable: list[Faulty] = []
    groups: dict[str | None, list[Message]] = {}
    for message in messages:
        if isinstance(message.headers, MessageError):
            unreadable.append(Faulty(message, message.headers))
        else:
            groups.setdefault(message.destination, []).append(message)
    return unreadable, groups
