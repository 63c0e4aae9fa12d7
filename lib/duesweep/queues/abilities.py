"""What a queue's session can do beyond its contract."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from duesweep.core.message import Message
from duesweep.queues.base import Destination


@runtime_checkable
class AppendsMessages(Protocol):
    """A session in the store's transaction that can do without savepoints."""

    def append(self, destination: Destination, messages: Sequence[Message]) -> None:
        """Deliver all of these messages.

        Raises `UnusualBatchError` where the destination refuses one of them, `DestinationError`
        where it takes nothing now: then the transaction has to be rolled back. Raises another
        `StoreError` when the service is out of reach.
        """
        ...
