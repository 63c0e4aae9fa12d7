"""The contract of single messages: one at a time, as NServiceBus's MSMQ transport has it."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from duesweep.core.headers import Headers
from duesweep.core.message import Message


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to store until it is `due`, an aware datetime. `destination` None is the endpoint's
    own queue. `stored_headers` is the text that a store of the same kind had for these headers and
    this destination, to be stored as it is; None: the store writes one. `instant_us` is the Due in
    microseconds since 1970-01-01 UTC where it is outside of Python's years, and `due` the nearest
    instant in them; None: `due` is exact.
    """

    destination: str | None
    headers: Headers
    body: bytes | None
    due: datetime
    stored_headers: str | None = None
    instant_us: int | None = None


class MessageSession(Protocol):
    """One message at a time, as in the MSMQ transport's `IDelayedMessageStore`; the batch contract
    does the same for many. It keeps no account. Not thread-safe. Within a `transaction`, fetching
    locks the message, and a failure restores removed rows.
    """

    def transaction(self) -> AbstractContextManager[None]:
        """The transaction of one message; nested, a savepoint."""

    def store(self, message: NewMessage) -> str:
        """Store a message until it is due; its key."""

    def fetch_next_due(self) -> Message | None:
        """Lock and return the eligible message that has been due for the longest, by the server's
        clock; or None. Skips rows that others hold.
        """

    def remove(self, message: Message) -> bool:
        """Remove a message that was fetched; False if it is gone already."""

    def raise_failure_count(self, message: Message) -> bool:
        """Count a failure for a message; False if it is gone already."""

    def next_due(self) -> datetime | None:
        """When the next message is or was due, in UTC; None if none is stored."""
