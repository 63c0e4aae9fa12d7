"""A delivery to a queue that answers late and can defer messages, with clocks that tests set."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random

from duesweep.core.errors import DuesweepError, MessageError
from duesweep.core.message import Message, Outcome
from duesweep.core.policy import BatchSize, BreakerTimes, RateLimits
from duesweep.core.world import SettableClock, StoreClock, micros
from duesweep.queues.base import Confirmation, Destination, QueueSession
from duesweep.sweep.delivery import SliceDelivery
from duesweep.sweep.destinations import Destinations
from duesweep_testing.builders import DUE, delayed_row, message


@dataclass(slots=True)
class LateQueue(QueueSession):
    """`late` are the answers to the keys that were sent; the keys in `silent` get none. `delivered`
    and `deferred` are the requests. Errors in `trouble` are raised: `resolve`, `deliver` or
    `defer` of a destination. `on_step` is called at the beginning of each step.
    """

    longest: int = 1_000
    late: dict[str, MessageError] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    trouble: dict[tuple[str, str], DuesweepError] = field(default_factory=dict)
    delivered: list[tuple[str, list[str]]] = field(default_factory=list)
    deferred: list[tuple[str, list[str]]] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    on_step: Callable[[str], object] = str
    _unanswered: list[str] = field(default_factory=list)

    def resolve(self, address: str | None) -> str:
        name = address or "own"
        self._meet("resolve", name)
        return name

    def longest_delay(self, destination: Destination) -> int:  # noqa: ARG002 - the contract's
        return self.longest

    def deliver(
        self, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        self._meet("deliver", str(destination))
        return self._take(self.delivered, destination, messages)

    def defer(
        self,
        destination: Destination,
        messages: Sequence[Message],
        clock: StoreClock,  # noqa: ARG002 - the contract's
    ) -> dict[str, MessageError]:
        self._meet("defer", str(destination))
        return self._take(self.deferred, destination, messages)

    def confirm(self, seconds: float) -> Confirmation:
        self.on_step("confirm")
        self.waited.append(seconds)
        asked, self._unanswered = self._unanswered, []
        return Confirmation(
            {key: self.late[key] for key in asked if key in self.late},
            frozenset(key for key in asked if key in self.silent),
        )

    def _meet(self, step: str, name: str) -> None:
        self.on_step(step)
        error = self.trouble.get((step, name))
        if error is not None:
            raise error

    def _take(
        self,
        asked: list[tuple[str, list[str]]],
        destination: Destination,
        messages: Sequence[Message],
    ) -> dict[str, MessageError]:
        keys = [message.key for message in messages]
        asked.append((str(destination), keys))
        self._unanswered += keys
        return {}


def due(destination: str | None = "Billing") -> Message:
    return message(delayed_row(destination, due=DUE))


def early(destination: str | None = "Billing", seconds: float = 30) -> Message:
    return message(delayed_row(destination, due=DUE + timedelta(seconds=seconds)))


class World:
    """A delivery of `queue`; the store's clock shows the second after `DUE`."""

    def __init__(self, queue: LateQueue) -> None:
        self.clock = SettableClock()
        self.store_clock = StoreClock(micros(DUE) + 1_000_000, self.clock)
        self.queue = queue
        self.destinations = Destinations(
            BreakerTimes(), RateLimits(), BatchSize(), self.clock, rng=Random(0)
        )
        self.delivery = SliceDelivery(queue, self.clock, self.destinations)

    def deliver_all(self, *messages: Message) -> list[Outcome]:
        return self.delivery.deliver_all(messages, self.store_clock)
