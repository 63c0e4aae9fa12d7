"""The queues of this project under test, but for those in memory."""

from contextlib import AbstractContextManager
from typing import Generic

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
