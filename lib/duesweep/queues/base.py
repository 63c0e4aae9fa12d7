"""The contract of a queue: deliver a group of messages to one destination."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from duesweep.core.message import Message
from duesweep.core.store_clock import StoreClock
from duesweep.errors import MessageError
from duesweep.stores.base import TaskSession


class Destination(Protocol):
    """Where messages go; its text is the queue's name in the ledger. Hashable."""

    def __str__(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What is known of deliveries that were under way: `refused` ones by key; the keys of
    `unconfirmed` ones, which may have arrived or not. The others have arrived.
    """

    refused: Mapping[str, MessageError] = field(default_factory=dict)
    unconfirmed: Collection[str] = ()


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
        """Deliver the messages, in order; what the destination refused, by key. Where the queue
        answers later, `confirm` says the rest.

        Raises `DestinationError` when this destination takes nothing now (then nothing of the group
        was delivered), `TransactionLostError` when all that the batch did is undone, another
        `StoreError` when the service is out of reach.
        """
        ...

    def longest_delay(self, destination: Destination) -> int:
        """For how many seconds the queue can defer a message; 0 where it cannot."""
        ...

    def defer(
        self, destination: Destination, messages: Sequence[Message], clock: StoreClock
    ) -> dict[str, MessageError]:
        """Give messages that are not due yet to the queue, which delivers them when they are due,
        never earlier; otherwise as `deliver`. `clock` tells how long that is. None may be due later
        than `longest_delay` allows.
        """
        ...

    def confirm(self, seconds: float) -> Confirmation:
        """Wait, at most about so long, until it is certain what became of all that was delivered
        since the last time. Nothing to wait for where `deliver` says it all.
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


class PromptQueueSession:
    """To inherit: a queue that says at once what it took, and cannot defer messages."""

    def longest_delay(self, destination: Destination) -> int:  # noqa: ARG002 - the same for all
        """It cannot defer messages."""
        return 0

    def defer(
        self, destination: Destination, messages: Sequence[Message], clock: StoreClock
    ) -> dict[str, MessageError]:
        """Never called, since `longest_delay` is 0."""
        raise AssertionError(f"{destination} cannot defer {len(messages)} messages at {clock}")

    def confirm(self, seconds: float) -> Confirmation:  # noqa: ARG002 - there is nothing to wait for
        """Everything is said."""
        return Confirmation()


class Queue(Protocol):
    """A kind of queue and where it is. A value: frozen, picklable; no secrets in its repr."""

    @property
    def shares_transaction(self) -> bool:
        """Whether deliveries are part of the store's transaction: then they are exactly once."""
        ...

    @property
    def longest_delay(self) -> int:
        """The longest time in seconds for which any of its queues can defer a message; 0 where none
        can.
        """
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


@runtime_checkable
class Routing(Protocol):
    """A queue that is several: what one of them may be able to do besides `Queue`."""

    def way(self, address: str) -> tuple[str, str]:
        """The connection that an address leads to, and the queue's address there.

        Raises a `MessageError` where it leads nowhere.
        """
        ...
