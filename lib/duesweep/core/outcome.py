"""What becomes of a claimed message. Values only; stores carry them out."""

from dataclasses import dataclass
from typing import NamedTuple

from duesweep.core.message import Message
from duesweep.errors import MessageError

# A message and why it could not be delivered.
Fault = tuple[Message, MessageError]


class Delivered(NamedTuple):
    """The message lies in `queue`; its row leaves the store. With `is_deferred` it was not due
    yet, and the queue's own delayed delivery brings it there when it is.
    """

    message: Message
    queue: str
    is_deferred: bool = False

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return "deferred" if self.is_deferred else "dispatched"


class Failed(NamedTuple):
    """The message stays; it is eligible again after `retry_seconds`."""

    message: Message
    error: MessageError
    retry_seconds: float


class Exhausted(NamedTuple):
    """The message is out of attempts; its row leaves the store, journalled whole.

    `queue` is the error queue in which it lies as well, None where none is set.
    """

    message: Message
    error: MessageError
    queue: str | None


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Everything that a batch does to the rows that it claimed.

    `over_limit` counts those of `failed` that are out of attempts, but over the sweep's limit.
    """

    delivered: tuple[Delivered, ...] = ()
    failed: tuple[Failed, ...] = ()
    exhausted: tuple[Exhausted, ...] = ()
    over_limit: int = 0

    @property
    def claimed(self) -> int:
        """How many messages these are."""
        return len(self.delivered) + len(self.failed) + len(self.exhausted)
