"""The queues that keep the contract, each with what a test needs to know of it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import psycopg
from endpoint import Endpoint

from duesweep import wiring
from duesweep.errors import DestinationError, DuesweepError, RefusedMessageError
from duesweep.message import Message
from duesweep.queues.base import Queue
from duesweep.stores.base import Store
from duesweep.testing.memory import MemoryStore
from duesweep.testing.memory_queue import MemoryQueue

REFUSED_BODY = b"unwanted"

Letters = list[tuple[str, bytes | None]]


class QueueUnderTest(Protocol):
    """A queue `Billing`, the endpoint's own, and a store beside them."""

    @property
    def queue(self) -> Queue:
        """The queues."""
        ...

    @property
    def store(self) -> Store:
        """A store whose sessions a queue may share."""
        ...

    @property
    def has_own_transaction(self) -> bool:
        """Whether a queue's deliveries are not part of the store's transaction."""
        ...

    def create(self, address: str) -> None:
        """Create another queue."""
        ...

    def drop(self, address: str) -> None:
        """Remove a queue."""
        ...

    def letters(self, address: str) -> Letters:
        """Headers and bodies of what lies in a queue, in order, as others see it."""
        ...

    def refuse(self, address: str) -> None:
        """Let a queue refuse what has `REFUSED_BODY`."""
        ...

    def locked(self, address: str) -> AbstractContextManager[None]:
        """Let a queue take nothing meanwhile."""
        ...


@dataclass(slots=True)
class MemoryQueueUnderTest:
    """Queues in memory."""

    has_own_transaction: bool
    queue: MemoryQueue = field(init=False)
    store: MemoryStore = field(default_factory=MemoryStore)

    def __post_init__(self) -> None:
        self.queue = MemoryQueue("Billing", own_transaction=self.has_own_transaction)

    def create(self, address: str) -> None:
        self.queue.letters[address] = []

    def drop(self, address: str) -> None:
        del self.queue.letters[address]

    def letters(self, address: str) -> Letters:
        return [(letter.headers, letter.body) for letter in self.queue.letters[address]]

    def refuse(self, address: str) -> None:
        self.queue.trouble[address] = _refuse

    @contextmanager
    def locked(self, address: str) -> Iterator[None]:
        self.queue.trouble[address] = lambda _: DestinationError(f"{address} is locked")
        yield
        del self.queue.trouble[address]


def _refuse(message: Message) -> DuesweepError | None:
    return RefusedMessageError("unwanted") if message.body == REFUSED_BODY else None


class PostgreSqlQueueUnderTest:
    """Queue tables: in the database of `endpoint`, or in another one."""

    def __init__(self, endpoint: Endpoint, elsewhere: Endpoint | None = None) -> None:
        self.has_own_transaction = elsewhere is not None
        own = {"queues__default__dsn": elsewhere.dsn} if elsewhere else {}
        parts = wiring.parts(endpoint.set_up().config(**own))
        self.queue, self.store = parts.queue, parts.store
        self.tables = elsewhere or endpoint
        for queue in ("Billing", endpoint.name):
            self.create(queue)

    def create(self, address: str) -> None:
        self.tables.create_queue(address)

    def drop(self, address: str) -> None:
        self.tables.execute(f"DROP TABLE {self.tables.addresses.parse(address)}")

    def letters(self, address: str) -> Letters:
        return [(row.headers, row.body) for row in self.tables.queue_rows(address)]

    def refuse(self, address: str) -> None:
        table = self.tables.addresses.parse(address)
        self.tables.execute(f"ALTER TABLE {table} ADD CHECK (body <> '{REFUSED_BODY.decode()}')")

    @contextmanager
    def locked(self, address: str) -> Iterator[None]:
        table = self.tables.addresses.parse(address)
        with psycopg.connect(self.tables.dsn) as connection:
            connection.execute(f"LOCK TABLE {table} IN SHARE MODE".encode())
            yield
