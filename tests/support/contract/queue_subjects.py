"""The queues of this project under test, but for those in memory."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from duesweep import wiring
from duesweep.testing.contract import REFUSED_BODY, ArrivedMessages
from support.endpoint import Endpoint


class PostgreSqlQueueUnderTest:
    """Queue tables: in the database of `endpoint`, or in another one."""

    has_null_bodies = True

    def __init__(self, endpoint: Endpoint, elsewhere: Endpoint | None = None) -> None:
        self.has_own_transaction = elsewhere is not None
        own = {"queues__default__dsn": elsewhere.dsn} if elsewhere else {}
        context = wiring.sweep_context(endpoint.set_up().config(**own))
        self.queue, self.store = context.queue, context.store
        self.tables = elsewhere or endpoint
        for queue in ("Billing", endpoint.name):
            self.create(queue)

    def create(self, address: str) -> None:
        self.tables.create_queue(address)

    def drop(self, address: str) -> None:
        self.tables.execute(f"DROP TABLE {self.tables.addresses.parse(address)}")

    def arrived(self, address: str) -> ArrivedMessages:
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
