"""What a task's session writes down besides its messages: failures, and messages given up."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from duesweep.core.message import Message
from duesweep.core.outcome import Exhausted, Failed
from duesweep.errors import MessageError, make_storable
from duesweep.stores.values import SweepRun

# Most sources have few counters: all of them cost less than a search for a thousand keys.
FEW_COUNTERS = 100


class BatchAccount(Protocol):
    """The retry counters of a source and what it exhausts, in one dialect, on one session."""

    def read_attempts(self, keys: Sequence[str]) -> Mapping[str, Any]:
        """The retry counters of claimed messages, by their keys; and perhaps some of others."""
        ...

    def clear_attempts(self, keys: Sequence[str]) -> None:
        """Drop the counters of messages that leave."""
        ...

    def raise_attempts(self, failed: Sequence[Failed]) -> None:
        """Count a failure for each."""
        ...

    def journal_exhausted(
        self, run: SweepRun, slice_number: int, exhausted: Sequence[Exhausted], server_us: int
    ) -> None:
        """Journal messages out of attempts, whole."""
        ...

    def lateness(self, late_ms: Sequence[int]) -> object:
        """Lateness in milliseconds as the dialect keeps it."""
        ...


def destination_of(message: Message, endpoint: str) -> str | None:
    """The destination to write down; None where it cannot be read."""
    if isinstance(message.headers, MessageError) and message.destination is None:
        return None
    return make_storable(endpoint if message.destination is None else message.destination)


def storable_or_none(text: str | None) -> str | None:
    """`text` without what a text column cannot hold; None stays None."""
    return None if text is None else make_storable(text)
