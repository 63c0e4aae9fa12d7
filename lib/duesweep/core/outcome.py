"""What becomes of a claimed message, as values. Stores act on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from duesweep.core.errors import MessageError
from duesweep.core.message import Message

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


@dataclass(slots=True)
class BatchResult:
    """What became of a batch's messages. Delivery and giving up fill it, and stores and the slice
    act on it.

    - `delivered` ones are in their queue.
    - `faulty` ones could not be delivered; each with its error. Each becomes one of the `failed`,
      which stay, or of the `exhausted`. `over_limit` counts those of the failed that are out of
      attempts but stay, because the sweep has exhausted as many as it may.
    - `blocked` ones wait in the store, since their destination takes nothing, or has a limit;
      `held` ones because it is paused; `early` ones since they are not due yet; `undeferred` ones
      since their destination cannot defer messages now.
    - `released` ones may have arrived or not, and `unreached` ones were not sent, since others took
      too long: both get another batch of this slice.
    """

    delivered: list[Delivered] = field(default_factory=list)
    faulty: list[Fault] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    exhausted: list[Exhausted] = field(default_factory=list)
    over_limit: int = 0
    blocked: list[Message] = field(default_factory=list)
    held: list[Message] = field(default_factory=list)
    early: list[Message] = field(default_factory=list)
    undeferred: list[Message] = field(default_factory=list)
    released: list[Message] = field(default_factory=list)
    unreached: list[Message] = field(default_factory=list)

    @property
    def claimed(self) -> int:
        """How many messages leave the store, or have one attempt less."""
        return len(self.delivered) + len(self.failed) + len(self.exhausted)

    def add(self, more: "BatchResult") -> None:
        """Add what delivery found out of other messages of the batch."""
        self.delivered += more.delivered
        self.faulty += more.faulty
        self.blocked += more.blocked
        self.early += more.early
        self.undeferred += more.undeferred
        self.released += more.released


def separate_refused(sent: Sequence[Delivered], refused: Mapping[str, MessageError]) -> BatchResult:
    """Separate the messages that were refused from the others. A refused message that is not due
    yet is not charged: the fault may be gone when it is due.
    """
    if not refused:
        return BatchResult(delivered=list(sent))
    result = BatchResult()
    for one in sent:
        error = refused.get(one.message.key)
        if error is None:
            result.delivered.append(one)
        elif one.is_deferred:
            result.early.append(one.message)
        else:
            result.faulty.append((one.message, error))
    return result
