"""One message at a time, on the tables of a relational store.

It has the methods of `IDelayedMessageStore`, the contract of delayed message stores of
NServiceBus's MSMQ transport. No sweep uses them: it claims batches, and keeps an account.

    with one_message_at_a_time(store) as session, session.transaction():
        message = session.fetch_next_due()
        if message is not None:
            deliver(message)  # after an error here, the message stays
            session.remove(message)
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime

from duesweep.core.errors import MessageError
from duesweep.core.message import Failed, Message
from duesweep.stores.messages import NewMessage
from duesweep.stores.sql_due import next_due
from duesweep.stores.sql_task import SqlTask
from duesweep.stores.store import SqlStore


class DeliveryFailedError(MessageError):
    """A caller that moves messages one by one reported a failure without a reason."""

    stored_name = "duesweep.errors.DeliveryFailedError"


@contextmanager
def one_message_at_a_time(store: SqlStore) -> Iterator["Messages"]:
    """A session for single messages of a store."""
    with store.open_task() as task:
        yield Messages(store, task)


class Messages:
    """A claim of one message, without a sweep. Not thread-safe. Within a `transaction`, fetching
    locks the message, and a failure restores removed rows.
    """

    def __init__(self, store: SqlStore, task: SqlTask) -> None:
        self._store, self._task = store, task
        self._zone = store.dialect.zone(task.statements, store) or "UTC"
        # By their keys, the lock keys of the messages that were fetched.
        self._fetched: dict[str, str] = {}

    def transaction(self) -> AbstractContextManager[None]:
        """The transaction of one message; nested, a savepoint."""
        return self._task.transaction()

    def store(self, message: NewMessage) -> str:
        """Store a message until it is due; its key."""
        with self.transaction():
            [(key, _)] = self._task.put_back([message], self._zone)
        return key

    def fetch_next_due(self) -> Message | None:
        """Lock and return the eligible message that has been due for the longest, by the server's
        clock; or None. Skips rows that others hold.
        """
        rows = self._task.lock_next(self._zone)
        self._fetched |= {row.message_key: self._store.kind.lock_key(row) for row in rows}
        return next(iter(self._task.messages(rows, in_back_off=False)), None)

    def remove(self, message: Message) -> bool:
        """Remove a message that this session fetched; False if it is gone already."""
        is_removed = bool(self._task.delete([message]))
        self._task.clear_counters([message.key])
        return is_removed

    def raise_failure_count(self, message: Message) -> bool:
        """Count a failure of a message that this session fetched; False if it is gone already."""
        if not self._task.hold([self._fetched[message.key]], self._zone):
            return False
        failed = Failed(message, DeliveryFailedError("It was not delivered"), 0)
        self._task.count_failures([failed])
        return True

    def next_due(self) -> datetime | None:
        """When the next message is or was due, in UTC; None if none is stored."""
        return next_due(self._task.statements, None, self._zone)
