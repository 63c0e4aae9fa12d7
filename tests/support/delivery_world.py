"""A delivery of one queue, with clocks that tests set."""

from datetime import timedelta

from duesweep.core.breaker import BreakerLimits
from duesweep.core.clock import SettableClock
from duesweep.core.destination_breakers import DestinationBreakers
from duesweep.core.message import Message
from duesweep.core.rate_limits import RateLimits, SliceLimits
from duesweep.core.store_clock import StoreClock
from duesweep.core.tracing import NoTracing
from duesweep.delivery import DeliveryResult, SliceDelivery
from duesweep.testing.builders import DUE, delayed_row, message
from duesweep.tombstone import micros
from support.late_queue import LateQueue


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
        self.breakers = DestinationBreakers(BreakerLimits(), self.clock)
        self.delivery = SliceDelivery(
            queue, self.clock, self.breakers, SliceLimits(RateLimits(), self.clock), NoTracing()
        )

    def deliver_all(self, *messages: Message) -> DeliveryResult:
        return self.delivery.deliver_all(messages, self.store_clock)
