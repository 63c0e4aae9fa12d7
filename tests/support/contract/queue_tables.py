"""Queue tables under test, and the steps of their tests."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Generic

from duesweep.core.errors import MessageError
from duesweep.core.message import Message
from duesweep.queues.base import QueueSession
from duesweep.stores.task import TaskSession
from duesweep_testing.builders import delayed_row, message
from duesweep_testing.contract import REFUSED_BODY, ArrivedMessages
from support.endpoint import Endpoint, S


class QueueTablesUnderTest(Generic[S]):
    """Queue tables: in the database of `endpoint`, or with `elsewhere` on a connection to its."""

    has_null_bodies = True

    def __init__(self, endpoint: Endpoint[S], elsewhere: Endpoint[S] | None = None) -> None:
        self.has_own_transaction = elsewhere is not None
        own = {"queues__default__dsn": elsewhere.dsn} if elsewhere else {}
        context = endpoint.set_up().context(**own)
        self.queue, self.store = context.queue, context.store
        self.tables = elsewhere or endpoint
        for queue in ("Billing", endpoint.name):
            self.create(queue)

    def create(self, address: str) -> None:
        self.tables.create_queue(address)

    def drop(self, address: str) -> None:
        self.tables.execute(f"DROP TABLE {self._table(address)}")

    def arrived(self, address: str) -> ArrivedMessages:
        return [(row.headers, row.body) for row in self.tables.queue_rows(address)]

    def refuse(self, address: str) -> None:
        refusal = self.tables.server.refusal(REFUSED_BODY)
        self.tables.execute(f"ALTER TABLE {self._table(address)} ADD CHECK ({refusal})")

    def locked(self, address: str) -> AbstractContextManager[None]:
        return self.tables.server.locked(self.tables.addresses.parse(address))

    def _table(self, address: str) -> str:
        return self.tables.server.quoted(self.tables.addresses.parse(address))


# The time that sessions of these tests wait for locks, instead of seconds.
LOCK_WAIT_SECONDS = 0.3


@contextmanager
def batch(
    endpoint: Endpoint[Any], dsn: str | None = None
) -> Iterator[tuple[TaskSession, QueueSession]]:
    """A store's and a queue's session, on `dsn` if given, with a transaction under way."""
    context = endpoint.context(**{"store__dsn": dsn} if dsn else {})
    with (
        context.store.open_task() as store,
        context.queue.open(store) as queue,
        store.transaction(),
    ):
        yield store, queue


def deliver(
    endpoint: Endpoint[Any], *messages: Message, address: str = "Billing"
) -> dict[str, MessageError]:
    """Deliver in a batch of its own. Returns the refused messages."""
    with batch(endpoint) as (_, queue):
        return queue.deliver(queue.resolve(address), messages)


def lying_in(endpoint: Endpoint[Any], address: str = "Billing") -> list[tuple[str, bytes | None]]:
    return [(row.headers, row.body) for row in endpoint.queue_rows(address)]


def expected(*messages: Message) -> list[tuple[str, bytes | None]]:
    """Headers and bodies of these messages as they are to be delivered."""
    return [(m.headers_text, m.body) for m in messages]


def with_bodies(*bodies: bytes) -> list[Message]:
    return [message(delayed_row(body=body)) for body in bodies]
