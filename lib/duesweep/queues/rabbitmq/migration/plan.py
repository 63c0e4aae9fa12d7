"""Decides where a message on the first delay ladder goes. No I/O.

Its headers say when it was sent, and how long it has to wait from then on. The rest of that delay
is rounded up, so that no message is early.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from duesweep.core.policy import delay_level
from duesweep.drivers.rabbitmq.exact import Copy, Delivery, Encoded
from duesweep.queues.rabbitmq import topology

POISON_QUEUE = "delays-migrate-poison-messages"
TIME_SENT_HEADER = "NServiceBus.TimeSent"

# As NServiceBus writes it: `yyyy-MM-dd HH:mm:ss:ffffff Z`.
_TIME_SENT_LENGTH = len("2026-11-21 08:00:00:123456 Z")
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class PlannedDelay:
    """A message enters the second ladder, to reach its destination in so many seconds."""

    destination: str
    seconds: int

    def copy(self, delivery: Delivery) -> Copy:
        """The message as it enters, without what a broker noted about its way so far."""
        return Copy(
            topology.level_name(delay_level(self.seconds)),
            topology.routing_key(self.seconds, self.destination),
            delivery.encoded.without(topology.BROKER_HEADERS),
            delivery.body,
        )


@dataclass(frozen=True, slots=True)
class Poison:
    """It is not known when a message is due, or where it goes; `reason` says why."""

    destination: str | None
    reason: str

    def copy(self, delivery: Delivery) -> Copy:
        """The message as it goes to the queue for poison."""
        return Copy("", POISON_QUEUE, delivery.encoded, delivery.body)


def decide(delivery: Delivery, now: datetime) -> PlannedDelay | Poison:
    """Where a message goes, at the time `now`."""
    destination = topology.destination_of(delivery.routing_key)
    if destination is None:
        return Poison(None, f"{delivery.routing_key!r} is not a routing key of a delay ladder")
    due = _due(delivery.encoded)
    if isinstance(due, str):
        return Poison(destination, due)
    seconds = max(-((now - due) // _SECOND), 0)
    if seconds > topology.LONGEST_DELAY_SECONDS:
        return Poison(destination, f"due {due:%Y-%m-%d}, which is longer than a ladder holds")
    return PlannedDelay(destination, seconds)


def _due(encoded: Encoded) -> datetime | str:
    """When the message is due, or why that is not known."""
    delay = encoded.number(topology.DELAY_HEADER)
    sent = _read_time_sent(encoded.text(TIME_SENT_HEADER))
    for name, value in ((topology.DELAY_HEADER, delay), (TIME_SENT_HEADER, sent)):
        if value is None:
            return f"header {name} is missing or cannot be read"
    assert delay is not None
    assert sent is not None
    try:
        return sent + timedelta(seconds=delay)
    except OverflowError:
        return f"header {topology.DELAY_HEADER} is {delay}, which is after the year 9999"


def _read_time_sent(text: str | None) -> datetime | None:
    # Python would also read fewer digits of a fraction, and other zones than Z.
    if text is None or len(text) != _TIME_SENT_LENGTH or not text.endswith(" Z"):
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S:%f %z")
    except ValueError:
        return None
