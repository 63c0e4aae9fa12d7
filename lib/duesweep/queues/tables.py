"""Delivery into queue tables, whatever the dialect: in groups, under savepoints."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from duesweep.core.message import Message
from duesweep.errors import DestinationError, MessageError, RefusedMessageError
from duesweep.queues.base import Destination, PromptQueueSession


class TransactedConnection(Protocol):
    """What a queue's session needs of its connection."""

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
    """Delivers in the store's transaction, or with `own_transaction` in one of its own, committed
    right before the store's: at least once.
    """

    def __init__(self, connection: TransactedConnection, *, own_transaction: bool) -> None:
        self._transacted = connection
        self._own_transaction = own_transaction

    def deliver(
        self, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        """Deliver the group; where a row spoils it, by halves, so that it costs only itself."""
        if self._own_transaction:
            self._transacted.begin()
        return self._deliver(destination, messages)

    def commit(self) -> None:
        """Commit what was delivered since the last time, unless the store's transaction does."""
        if self._own_transaction:
            self._transacted.commit()

    def rollback(self) -> None:
        """Forget what was delivered since the last time, unless the store's transaction does."""
        if self._own_transaction:
            self._transacted.rollback()

    @abstractmethod
    def _insert(self, destination: Destination, messages: Sequence[Message]) -> None:
        """Insert the messages, all or none."""

    @abstractmethod
    def _why_gone(self, destination: Destination) -> MessageError | None:
        """The messages' fault where the table is a queue's no more; None where it is."""

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
            gone = self._why_gone(destination)
            if gone is None:
                raise
            return dict.fromkeys((message.key for message in messages), gone)
        return {}

    def _deliver_halves(
        self, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        half = len(messages) // 2
        # Both under one savepoint: if the table takes nothing for the second half, the first must
        # not stay behind a group that counts as not delivered.
        with self._transacted.transaction():
            refused = self._deliver(destination, messages[:half])
            return refused | self._deliver(destination, messages[half:])
