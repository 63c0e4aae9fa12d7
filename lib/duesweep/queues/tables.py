"""Delivers into queue tables of all dialects, in groups, under savepoints."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from duesweep.core.message import Message
from duesweep.errors import DestinationError, MessageError, RefusedMessageError
from duesweep.queues.base import Destination, PromptQueueSession


class TransactedConnection(Protocol):
    """What a queue's session needs from its connection."""

    def transaction(self) -> AbstractContextManager[None]:
        """A transaction, or within one a savepoint."""
        ...

    def begin(self) -> None:
        """Begin a transaction, unless one is under way."""
        ...

    def commit(self) -> None:
        """Commit what was begun."""
        ...

    def rollback(self) -> None:
        """Roll back what was begun, if anything."""
        ...


class QueueTableSession(PromptQueueSession, ABC):
    """Delivers in the store's transaction: exactly once. With `own_transaction` it has its own,
    which is committed right before the store's: at least once.
    """

    def __init__(self, connection: TransactedConnection, *, own_transaction: bool) -> None:
        self._transacted = connection
        self._own_transaction = own_transaction

    def deliver(
        self, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        """Deliver the group. If a row is refused, deliver by halves: only that row fails."""
        if self._own_transaction:
            self._transacted.begin()
        return self._deliver(destination, messages)

    def commit(self) -> None:
        """Commit the deliveries, if they are not in the store's transaction."""
        if self._own_transaction:
            self._transacted.commit()

    def rollback(self) -> None:
        """Roll back the deliveries, if they are not in the store's transaction."""
        if self._own_transaction:
            self._transacted.rollback()

    @abstractmethod
    def _insert(self, destination: Destination, messages: Sequence[Message]) -> None:
        """Insert the messages, all or none."""

    @abstractmethod
    def _find_fault(self, destination: Destination) -> MessageError | None:
        """The error for the messages if the table is not a queue table any more; else None."""

    def _deliver(
        self, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        try:
            with self._transacted.transaction():
                self._insert(destination, messages)
        except RefusedMessageError as error:
            if len(messages) == 1:
                return {messages[0].key: error}
            return self._deliver_halves(destination, messages)
        except DestinationError:
            gone = self._find_fault(destination)
            if gone is None:
                raise
            return dict.fromkeys((message.key for message in messages), gone)
        return {}

    def _deliver_halves(
        self, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        half = len(messages) // 2
        # Both halves are under one savepoint: if the table takes nothing for the second half, the
        # first half must be undone, since the whole group counts as not delivered.
        with self._transacted.transaction():
            refused = self._deliver(destination, messages[:half])
            return refused | self._deliver(destination, messages[half:])
