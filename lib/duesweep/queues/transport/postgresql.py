"""Queue tables of the PostgreSQL transport, for its own operations."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from duesweep.core.address import PostgreSqlAddresses, TableName, quote_name
from duesweep.core.errors import ConfigError
from duesweep.core.policy import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.postgresql.session import PostgreSqlSession, connect, find_table, text_of
from duesweep.drivers.statements import Session
from duesweep.queues.base import Destination
from duesweep.queues.transport.session import Transport, TransportSession

FindZone = Callable[[PostgreSqlSession], str]


def postgresql_transport(
    dsn: str,
    addresses: PostgreSqlAddresses,
    delayed: TableName | None = None,
    *,
    find_zone: FindZone = lambda _: "UTC",
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> Transport:
    """Queue tables of one database, and the endpoint's delayed table if it is there too. Delayed
    messages are stored in the time zone of the table's writers, which `find_zone` returns. A
    session may be idle in a transaction as long as a handler runs.
    """

    @contextmanager
    def open_session() -> Iterator[TransportSession]:
        with connect(dsn, timeouts.handler) as connection:
            yield PostgreSqlTransportSession(connection, addresses, delayed, find_zone)

    return Transport(addresses, open_session, _script)


class PostgreSqlTransportSession(TransportSession):
    """Names are quoted tables, values are bound."""

    def __init__(
        self,
        connection: PostgreSqlSession,
        addresses: PostgreSqlAddresses,
        delayed: TableName | None,
        find_zone: FindZone,
    ) -> None:
        super().__init__(addresses, delayed)
        self._connection = connection
        self._find_zone = find_zone
        self._zone: str | None = None

    def transaction(self) -> AbstractContextManager[None]:
        return self._connection.transaction()

    def named(self, tables: Mapping[str, Destination]) -> Session:
        return self._connection.named(_tables(tables))

    def create(self, name: str, role: str, table: Destination) -> None:
        """Run it under the advisory lock that the transport itself takes to alter this table."""
        names = _tables({role: table})
        schema = names[role].schema
        if not self._connection.rows("describe_schema", schema=schema):
            raise ConfigError(
                f"There is no schema {quote_name(schema)} to create {table} in",
                advice="create it, or correct the address",
            )
        with self._connection.transaction():
            self._connection.rows("lock_creation", lock_key=_creation_lock(str(table)))
            self._connection.script(text_of(name, names))

    def columns(self, table: Destination) -> set[str]:
        found = _tables({"table": table})["table"]
        described = find_table(self._connection, found)
        return set(described.columns) if described else set()

    @contextmanager
    def writers_zone(self) -> Iterator[None]:
        """Sets the writers' zone: the transport casts Due to timestamptz in its session's zone."""
        if self._zone is None:
            self._zone = self._find_zone(self._connection)
        with self._connection.transaction():
            self._connection.row("set_zone", zone=self._zone)
            yield
            # The setting would outlive a savepoint.
            self._connection.row("set_zone", zone="UTC")


def _script(names: Sequence[str], role: str, table: Destination) -> str:
    return "\n".join(text_of(name, _tables({role: table})) for name in names)


def _tables(tables: Mapping[str, Destination]) -> dict[str, TableName]:
    # All are `TableName`s: they come from `addresses`.
    return {name: table for name, table in tables.items() if isinstance(table, TableName)}


def _creation_lock(qualified_name: str) -> int:
    """As the transport's `QueueCreator.CalculateLockId`."""
    digest = hashlib.sha256(qualified_name.encode("utf-16-le")).digest()
    return int.from_bytes(digest[:8], "little", signed=True)
