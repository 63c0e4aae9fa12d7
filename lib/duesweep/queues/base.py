"""The contract of a queue: deliver a group of messages to one destination."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from duesweep.errors import MessageError
from duesweep.message import Message
from duesweep.stores.base import TaskSession


class Destination(Protocol):
    """Where messages go; its text is the queue's name in the ledger. Hashable."""

    def __str__(self) -> str: ...


class QueueSession(Protocol):
    """One task's way to its queues. Not thread-safe."""

    def resolve(self, address: str | None) -> Destination:
        """The destination that `address` names; None is the endpoint's own queue.

        Raises a `MessageError` when there is no such queue.
        """
        ...

    def deliver(
        self, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        """Deliver the messages, in order; what the destination refused, by key.

        Raises `DestinationError` when this destination takes nothing now (then nothing of the group
        was delivered), `TransactionLostError` when all that the batch did is undone, another
        `StoreError` when the service is out of reach.
        """
        ...

    def commit(self) -> None:
        """Make deliveries durable, right before the store commits that their messages are gone.
        Nothing to do where the queue shares the store's transaction.
        """
        ...

    def rollback(self) -> None:
        """Forget deliveries since the last commit: the store's transaction is lost. Nothing to do
        where the queue shares it.
        """
        ...


class Queue(Protocol):
    """A kind of queue and where it is. A value: frozen, picklable; no secrets in its repr."""

    @property
    def shares_transaction(self) -> bool:
        """Whether deliveries are part of the store's transaction: then they are exactly once."""
        ...

    def open(self, store: TaskSession) -> AbstractContextManager[QueueSession]:
        """A session beside a store's."""
        ...

    def check(self, error_queue: str | None) -> None:
        """Find out, before anything is claimed, whether messages can be delivered here.

        Raises `ConfigError` where these cannot be the endpoint's queues, or where `error_queue`
        names no queue that takes messages; `StoreError` where the service is out of reach.
        """
        ...
