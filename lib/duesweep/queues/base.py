"""The contract of a queue: deliver a group of messages to one destination.

A queue and its sessions inherit it: rare abilities have a default answer here.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from duesweep.core.errors import MessageError, Problem
from duesweep.core.message import Message
from duesweep.core.world import StoreClock
from duesweep.stores.base import DriverSession
from duesweep.stores.task import Table, TaskSession

# A destination of messages; its text is the queue's name in the ledger.
Destination = Hashable


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The outcomes of pending deliveries. `refused`: the errors of refused messages, by key.
    `unconfirmed`: the keys of messages that may have arrived or not. All others have arrived.
    """

    refused: Mapping[str, MessageError] = field(default_factory=dict)
    unconfirmed: Collection[str] = ()


class QueueSession(Protocol):
    """One task's session on its queues. Not thread-safe."""

    def resolve(self, address: str | None) -> Destination:
        """The destination that `address` names; None is the endpoint's own queue.

        Raises a `MessageError` when there is no such queue.
        """

    def deliver(
        self, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        """Deliver the messages, in order. Returns the errors of messages that the destination
        refused, by key. If the queue answers later, `confirm` returns the rest.

        Raises `DestinationError` when this destination is unavailable now (then nothing of the
        group was delivered), `TransactionLostError` when all work of the batch was rolled back,
        another `StoreError` when the service is out of reach.
        """

    def table(self, destination: Destination) -> Table | None:  # noqa: ARG002 - for all
        """The table into which the store's session may put rows itself, in its transaction, instead
        of `deliver`; None: it has to be `deliver`.
        """
        return None

    def longest_delay(self, destination: Destination) -> int:  # noqa: ARG002 - for all
        """For how many seconds the queue can defer a message; 0 if it cannot."""
        return 0

    def defer(
        self, destination: Destination, messages: Sequence[Message], clock: StoreClock
    ) -> dict[str, MessageError]:
        """Give messages that are not due yet to the queue. It delivers them when they are due,
        never earlier. Otherwise like `deliver`. `clock` says how long each message has to wait.
        That is never longer than `longest_delay`.
        """
        raise AssertionError(f"{destination} cannot defer {len(messages)} messages at {clock}")

    def confirm(self, seconds: float) -> Confirmation:  # noqa: ARG002 - it does not wait
        """Wait, about `seconds` at most, for the queue's answers to all deliveries since the last
        call. Returns at once where `deliver` returns all answers.
        """
        return Confirmation()

    def commit(self) -> None:
        """Make deliveries durable, right before the store commits the removal of their messages.
        Does nothing where the queue shares the store's transaction, or its answers are final.
        """
        return

    def rollback(self) -> None:
        """Undo deliveries since the last commit: the store's transaction is lost. Does nothing
        where the queue shares that transaction.
        """
        return


class Queue(Protocol):
    """A kind of queue and its location. A value: frozen, picklable; no secrets in its repr."""

    @property
    def shares_transaction(self) -> bool:
        """Whether deliveries are part of the store's transaction: then they are exactly once."""

    @property
    def longest_delay(self) -> int:
        """The most seconds for which one of its queues can defer a message; 0: none can."""
        return 0

    def open(self, store: TaskSession) -> AbstractContextManager[QueueSession]:
        """Open a session next to a store's session."""

    def check(self, error_queue: str | None, store: DriverSession) -> None:
        """Check, before anything is claimed, whether messages can be delivered here, next to a
        store's session.

        Raises `ConfigError` where these are not the endpoint's queues, or where `error_queue` is
        not a queue that takes messages; `StoreError` where the service is out of reach.
        """

    def route(self, address: str) -> tuple[str, str]:
        """The connection that an address leads to, and the queue's address there. The connection
        has no name if it is the only one.

        Raises a `MessageError` where it leads nowhere.
        """
        return "", address

    def notices(self, store: DriverSession) -> Sequence[Problem]:  # noqa: ARG002 - for all
        """Faults of its queues although they take messages, and what to do. See `check`."""
        return ()
