"""Carrying a batch's messages to their destinations, and learning what became of each.

A destination that takes nothing is left alone for the rest of the slice. What nobody knows to have
arrived is put back: to be claimed, and carried, again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from duesweep.clock import Clock
from duesweep.errors import DestinationError, MessageError, TransactionLostError
from duesweep.message import Message
from duesweep.outcome import Delivered
from duesweep.policy import CLAIM_SECONDS
from duesweep.queues.base import Destination, QueueSession
from duesweep.store_clock import StoreClock

_Fault = tuple[Message, MessageError]

# What is left of a batch's time for answers, however long it took to ask.
_LEAST_ANSWER_SECONDS = 1.0


@dataclass(slots=True)
class Carried:
    """What became of a batch's messages: `faulty` ones with their fault, `passed_over` ones for
    which there is nothing to be done in this slice, `put_back` ones for another batch of it.
    """

    delivered: list[Delivered] = field(default_factory=list)
    faulty: list[_Fault] = field(default_factory=list)
    passed_over: list[Message] = field(default_factory=list)
    put_back: list[Message] = field(default_factory=list)

    @property
    def has_results(self) -> bool:
        """Whether the batch changes anything in the store."""
        return bool(self.delivered or self.faulty)

    def add(self, more: "Carried") -> None:
        """Count other messages in."""
        self.delivered += more.delivered
        self.faulty += more.faulty
        self.passed_over += more.passed_over
        self.put_back += more.put_back


class Courier:
    """One slice's way to its destinations."""

    def __init__(self, queue: QueueSession, clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self._blocked: dict[str | None, str] = {}

    @property
    def blocked_reason(self) -> str | None:
        """Why destinations took nothing, where some did."""
        return "; ".join(sorted(set(self._blocked.values()))) or None

    def carry(self, messages: Sequence[Message], store_clock: StoreClock) -> Carried:
        """Carry each message to its destination, or hand it to the delayed delivery there if it is
        not due yet. Destinations not begun within a claim's time are put back.
        """
        deadline = self._clock.seconds() + CLAIM_SECONDS
        unreadable, groups = _by_destination(messages)
        carried = _charged(unreadable, store_clock)
        for address, group in groups.items():
            if carried.has_results and self._clock.seconds() > deadline:
                carried.put_back += group
            elif address in self._blocked:
                carried.passed_over += group
            else:
                carried.add(self._carry_group(address, group, store_clock))
        self._confirm(carried, store_clock, deadline)
        return carried

    def carry_letters(
        self, address: str, letters: Sequence[Message]
    ) -> tuple[str | None, frozenset[str]]:
        """Carry letters to one destination now; its queue's name and the keys that arrived."""
        if address in self._blocked:
            return None, frozenset()
        try:
            destination = self._queue.resolve(address)
            refused = self._try_deliver(address, destination, letters)
        except (DestinationError, MessageError) as error:
            self._blocked[address] = str(error)
            return None, frozenset()
        answer = self._queue.confirm(CLAIM_SECONDS)
        missing = {*refused, *answer.refused, *answer.unconfirmed}
        return str(destination), frozenset(m.key for m in letters if m.key not in missing)

    def _carry_group(
        self, address: str | None, group: Sequence[Message], store_clock: StoreClock
    ) -> Carried:
        """What became of messages with one destination."""
        waits = [(message, store_clock.seconds_until(message.due_us)) for message in group]
        due = [message for message, seconds in waits if not seconds]
        try:
            destination = self._queue.resolve(address)
            longest = self._queue.longest_delay(destination)
            early = [message for message, seconds in waits if 0 < seconds <= longest]
            refused = self._try_deliver(address, destination, due) if due else {}
            if early:
                refused |= self._queue.defer(destination, early, store_clock)
        except DestinationError as error:
            self._blocked[address] = str(error)
            return Carried(passed_over=list(group))
        except MessageError as error:
            return _charged([(message, error) for message in group], store_clock)
        queue = str(destination)
        sent = [Delivered(m, queue) for m in due] + [
            Delivered(m, queue, is_handed_over=True) for m in early
        ]
        carried = _charged(
            [(o.message, refused[o.message.key]) for o in sent if o.message.key in refused],
            store_clock,
        )
        carried.delivered = [one for one in sent if one.message.key not in refused]
        carried.passed_over += [message for message, seconds in waits if seconds > longest]
        return carried

    def _try_deliver(
        self, address: str | None, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        try:
            return self._queue.deliver(destination, messages)
        except TransactionLostError as error:
            # Claimed again, the batch is to do without it.
            if error.destination_is_at_fault:
                self._blocked[address] = str(error)
            raise

    def _confirm(self, carried: Carried, store_clock: StoreClock, deadline: float) -> None:
        """Take back what the queue's late answers deny."""
        if not carried.delivered:
            return
        answer = self._queue.confirm(max(_LEAST_ANSWER_SECONDS, deadline - self._clock.seconds()))
        if not (answer.refused or answer.unconfirmed):
            return
        sent, carried.delivered = carried.delivered, []
        faulty: list[_Fault] = []
        for one in sent:
            key = one.message.key
            if key in answer.refused:
                faulty.append((one.message, answer.refused[key]))
            elif key in answer.unconfirmed:
                carried.put_back.append(one.message)
            else:
                carried.delivered.append(one)
        carried.add(_charged(faulty, store_clock))


def _charged(faulty: Iterable[_Fault], store_clock: StoreClock) -> Carried:
    """Messages with their faults; those that are not due yet are not charged: until then, all may
    be well.
    """
    carried = Carried()
    for message, error in faulty:
        if store_clock.seconds_until(message.due_us):
            carried.passed_over.append(message)
        else:
            carried.faulty.append((message, error))
    return carried


def _by_destination(
    messages: Iterable[Message],
) -> tuple[list[_Fault], dict[str | None, list[Message]]]:
    """Messages that cannot be read, and the others by their destination."""
    unreadable: list[_Fault] = []
    groups: dict[str | None, list[Message]] = {}
    for message in messages:
        if isinstance(message.headers, MessageError):
            unreadable.append((message, message.headers))
        else:
            groups.setdefault(message.destination, []).append(message)
    return unreadable, groups
