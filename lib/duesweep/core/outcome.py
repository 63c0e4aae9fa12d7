"""What becomes of a claimed message, as values. Stores act on them."""

from dataclasses import dataclass
from typing import NamedTuple

from duesweep.core.message import Message
from duesweep.errors import MessageError

# A message, and why it could not be delivered.
Fault = tuple[Message, MessageError]


class Delivered(NamedTuple):
    """The message is in `queue`, and its row leaves the store. `is_deferred`: it was not due yet,
    and the queue's own delayed delivery delivers it when it is due.
    """

    message: Message
    queue: str
    is_deferred: bool = False

    @property
    def name(self) -> str:
        """The outcome's name in the ledger."""
        return "deferred" if self.is_deferred else "dispatched"


class Failed(NamedTuple):
    """The message stays; it is eligible again after `retry_seconds`."""

    message: Message
    error: MessageError
    retry_seconds: float


class Exhausted(NamedTuple):
    """The message is out of attempts. Its row leaves the store, and the journal gets all of it.

    `queue` is the error queue that has the message too; None: no error queue is set.
    """

    message: Message
    error: MessageError
    queue: str | None


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Everything that a batch does to the rows that it claimed.

    `over_limit` counts messages in `failed` that are out of attempts but stay, because the sweep
    has exhausted as many as it may.
    """

    delivered: tuple[Delivered, ...] = ()
    failed: tuple[Failed, ...] = ()
    exhausted: tuple[Exhausted, ...] = ()
    over_limit: int = 0

    @property
    def claimed(self) -> int:
        """The number of all these messages."""
        return len(self.delivered) + len(self.failed) + len(self.exhausted)
