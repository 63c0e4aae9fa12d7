"""Queues in memory, with the contract of real ones."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from duesweep.core.errors import (
    ConfigError,
    DuesweepError,
    MessageError,
    QueueNotFoundError,
)
from duesweep.core.message import Message
from duesweep.queues.base import Destination, Queue, QueueSession
from duesweep.stores.base import DriverSession
from duesweep.stores.task import TaskSession
from duesweep_testing.builders import ENDPOINT
from duesweep_testing.memory_sessions import MemoryTaskSession

Trouble = Callable[[Message], DuesweepError | None]


@dataclass(frozen=True, slots=True)
class ArrivedMessage:
    """A message in a queue."""

    headers: str
    body: bytes | None


class MemoryQueue(Queue):
    """Queues `names`. Messages are in `arrived` after their transaction commits: the store's, or
    with `own_transaction` the queue's own.

    `trouble` has a function for a queue that may return an error for a message: a `MessageError`
    refuses this message, any other error is raised.
    """

    def __init__(self, *names: str, own_transaction: bool = False) -> None:
        self.arrived: dict[str, list[ArrivedMessage]] = {name: [] for name in (ENDPOINT, *names)}
        self.trouble: dict[str, Trouble] = {}
        self._own_transaction = own_transaction

    @property
    def shares_transaction(self) -> bool:
        return not self._own_transaction

    @contextmanager
    def open(self, store: TaskSession) -> Iterator["MemoryQueueSession"]:
        assert isinstance(store, MemoryTaskSession)
        yield MemoryQueueSession(self, None if self._own_transaction else store)

    def check(self, error_queue: str | None, store: DriverSession) -> None:  # noqa: ARG002 - it knows
        """Raise `ConfigError` unless `error_queue` is one of the queues. With `own_transaction`,
        the endpoint's own queue has to be one too.
        """
        for name in [ENDPOINT if self._own_transaction else None, error_queue]:
            if name is not None and name not in self.arrived:
                raise ConfigError(f"There is no queue {name}")


class MemoryTable(NamedTuple):
    """A queue next to the store."""

    name: str
    session: "MemoryQueueSession"

    def __str__(self) -> str:
        return self.name


class MemoryQueueSession(QueueSession):
    """Delivers in the transaction of `store`; if that is None, in one that `commit` ends."""

    def __init__(self, queue: MemoryQueue, store: MemoryTaskSession | None) -> None:
        self._queue = queue
        self._store = store
        self._sent: list[Callable[[], object]] = []

    def resolve(self, address: str | None) -> str:
        name = ENDPOINT if address is None else address
        if name not in self._queue.arrived:
            raise QueueNotFoundError(f"There is no queue {name}")
        return name

    def deliver(
        self, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        name = str(destination)
        refused: dict[str, MessageError] = {}
        sent = []
        trouble = self._queue.trouble.get(name)
        for message in messages:
            error = trouble(message) if trouble else None
            if isinstance(error, MessageError):
                refused[message.key] = error
            elif error is not None:
                raise error
            else:
                sent.append(ArrivedMessage(message.headers_text, message.body))
        send = partial(self._queue.arrived[name].extend, sent)
        if self._store is not None:
            self._store.enlist(send)
        else:
            self._sent.append(send)
        return refused

    def table(self, destination: Destination) -> "MemoryTable | None":
        return None if self._store is None else MemoryTable(str(destination), self)

    def commit(self) -> None:
        for send in self._sent:
            send()
        self._sent.clear()

    def rollback(self) -> None:
        self._sent.clear()
