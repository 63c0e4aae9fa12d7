"""What became of the messages of a batch that was delivered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from duesweep.core.message import Message
from duesweep.core.outcome import Delivered, Fault
from duesweep.errors import MessageError


@dataclass(slots=True)
class DeliveryResult:
    """What became of a batch's messages.

    `delivered` ones are in their queue. `faulty` ones could not be delivered; each has its error.
    `released` ones may have arrived or not, and `unreached` ones were not sent, since others took
    too long: both get another batch of this slice. `blocked` ones wait in the store, since their
    destination takes nothing, or has a limit. `held` ones wait there because it is paused. `early`
    ones stay in the store, since they are not due yet, and so do
    `undeferred` ones, since their destination cannot defer messages now.
    """

    delivered: list[Delivered] = field(default_factory=list)
    faulty: list[Fault] = field(default_factory=list)
    blocked: list[Message] = field(default_factory=list)
    held: list[Message] = field(default_factory=list)
    early: list[Message] = field(default_factory=list)
    undeferred: list[Message] = field(default_factory=list)
    released: list[Message] = field(default_factory=list)
    unreached: list[Message] = field(default_factory=list)

    @property
    def has_results(self) -> bool:
        """Whether the batch changes the store."""
        return bool(self.delivered or self.faulty)

    def add(self, more: "DeliveryResult") -> None:
        """Add the result of other messages of the batch."""
        self.delivered += more.delivered
        self.faulty += more.faulty
        self.blocked += more.blocked
        self.held += more.held
        self.early += more.early
        self.undeferred += more.undeferred
        self.released += more.released
        self.unreached += more.unreached


def separate_refused(
    sent: Sequence[Delivered], refused: Mapping[str, MessageError]
) -> DeliveryResult:
    """Separate the messages that were refused from the others. A refused message that is not due
    yet is not charged: the fault may be gone when it is due.
    """
    if not refused:
        return DeliveryResult(delivered=list(sent))
    result = DeliveryResult()
    for one in sent:
        error = refused.get(one.message.key)
        if error is None:
            result.delivered.append(one)
        elif one.is_deferred:
            result.early.append(one.message)
        else:
            result.faulty.append((one.message, error))
    return result
