"""Pauses: destinations to which an operator lets nothing go."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from duesweep.core.errors import MessageError
from duesweep.core.message import Address, Message
from duesweep.core.patterns import EVERYTHING, fits_destination


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing goes to the destinations that fit `pattern`, in which `*` stands for any text, from
    `paused_at` until `until`; None: until somebody resumes them. Times are aware datetimes.
    """

    pattern: str
    paused_at: datetime
    until: datetime | None
    given_by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Paused:
    """The patterns of the pauses in force. `own_name` is the endpoint's, for messages to its own
    queue.
    """

    patterns: Sequence[str] = ()
    own_name: str = ""

    def holds(self, address: Address) -> bool:
        """Whether nothing may go to a destination."""
        name = self.own_name if address is None else address
        return any(fits_destination(name, pattern) for pattern in self.patterns)

    def separate(self, messages: Sequence[Message]) -> tuple[list[Message], Sequence[Message]]:
        """The messages that may not go, and the others. One whose destination cannot be read waits
        only if everything does.
        """
        if not self.patterns:
            return [], messages
        held: list[Message] = []
        free: list[Message] = []
        for message in messages:
            is_unknown = isinstance(message.headers, MessageError) and message.destination is None
            waits = EVERYTHING in self.patterns if is_unknown else self.holds(message.destination)
            (held if waits else free).append(message)
        return held, free
