"""What becomes of a message on the first delay ladder. No I/O.

When it is due is in its headers: when it was sent, and how long it was to wait from then on. What
is left of that is rounded up, so that nothing is early.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from duesweep.core.policy import delay_level
from duesweep.drivers.rabbitmq.exact import Copy, Delivery, Encoded
from duesweep.queues.rabbitmq import ladder

POISON_QUEUE = "delays-migrate-poison-messages"
TIME_SENT_HEADER = "NServiceBus.TimeSent"

# As NServiceBus writes it: `yyyy-MM-dd HH:mm:ss:ffffff Z`.
_TIME_SENT_LENGTH = len("2026-11-21 08:00:00:123456 Z")
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class PlannedDelay:
    """A message enters the second ladder, to be at its destination in so many seconds."""

    destination: str
    seconds: int

    def copy(self, delivery: Delivery) -> Copy:
        """As it enters. What a broker noted of its way so far would be wrong of the way to come."""
        return Copy(
            ladder.level_name(delay_level(self.seconds)),
            ladder.routing_key(self.seconds, self.destination),
            delivery.encoded.without(ladder.BROKER_HEADERS),
            delivery.body,
        )


@dataclass(frozen=True, slots=True)
class Poison:
    """Nobody can say when a message is due, or where it is to be; `reason` says why."""

    destination: str | None
    reason: str

    def copy(self, delivery: Delivery) -> Copy:
        """As it goes to the queue for such messages."""
        return Copy("", POISON_QUEUE, delivery.encoded, delivery.body)


def decide(delivery: Delivery, now: datetime) -> PlannedDelay | Poison:
    """Where a message is to go, at the time `now`."""
    destination = ladder.destination_of(delivery.routing_key)
    if destination is None:
        return Poison(None, f"{delivery.routing_key!r} is no routing key of a delay ladder")
    due = _due(delivery.encoded)
    if isinstance(due, str):
        return Poison(destination, due)
    seconds = max(-((now - due) // _SECOND), 0)
    if seconds > ladder.LONGEST_DELAY_SECONDS:
        return Poison(destination, f"due {due:%Y-%m-%d}, which is longer than a ladder holds")
    return PlannedDelay(destination, seconds)


def _due(encoded: Encoded) -> datetime | str:
    """When it is due, or why that is not known."""
    delay = encoded.number(ladder.DELAY_HEADER)
    sent = _read_time_sent(encoded.text(TIME_SENT_HEADER))
    for name, value in ((ladder.DELAY_HEADER, delay), (TIME_SENT_HEADER, sent)):
        if value is None:
            return f"header {name} is missing or cannot be read"
    assert delay is not None
    assert sent is not None
    try:
        return sent + timedelta(seconds=delay)
    except OverflowError:
        return f"header {ladder.DELAY_HEADER} is {delay}, which no calendar holds"


def _read_time_sent(text: str | None) -> datetime | None:
    # Python takes fewer digits for a fraction, too, and other zones than Z.
    if text is None or len(text) != _TIME_SENT_LENGTH or not text.endswith(" Z"):
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S:%f %z")
    except ValueError:
        return None
