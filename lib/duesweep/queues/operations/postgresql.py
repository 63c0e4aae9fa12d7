"""The operations on PostgreSQL."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from duesweep.core.address import PostgreSqlAddresses, TableName, quote_name
from duesweep.core.errors import ConfigError
from duesweep.core.policy import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.postgresql.session import PostgreSqlSession, connect, find_table, text_of
from duesweep.drivers.statements import Session
from duesweep.queues.base import Destination
from duesweep.queues.operations.base import QueueStatements

FindZone = Callable[[PostgreSqlSession], str]


@dataclass(frozen=True, slots=True)
class PostgreSqlTransport:
    """Queue tables of one database, and the endpoint's delayed table if it is there too. Delayed
    messages are stored in the time zone of the table's writers, which `find_zone` returns.
    """

    dsn: str = field(repr=False)
    addresses: PostgreSqlAddresses
    delayed: TableName | None = None
    find_zone: FindZone = field(default=lambda _: "UTC", repr=False)
    timeouts: Timeouts = DEFAULT_TIMEOUTS

    def script(self, names: Sequence[str], role: str, table: Destination) -> str:
        """The statements of these names, as `PostgreSqlDialect.create` runs them."""
        return "\n".join(text_of(name, _tables({role: table})) for name in names)

    @contextmanager
    def connect(self) -> Iterator["PostgreSqlDialect"]:
        """Open a session. It may be idle in a transaction as long as a handler runs."""
        with connect(self.dsn, self.timeouts.handler) as connection:
            yield PostgreSqlDialect(connection, self)


class PostgreSqlDialect:
    """Names are quoted tables, values are bound."""

    def __init__(self, connection: PostgreSqlSession, transport: PostgreSqlTransport) -> None:
        self.addresses = transport.addresses
        self.delayed = transport.delayed
        self._connection = connection
        self._find_zone = transport.find_zone
        self._zone: str | None = None

    def transaction(self) -> AbstractContextManager[None]:
        """A transaction; nested, a savepoint."""
        return self._connection.transaction()

    def named(self, tables: Mapping[str, Destination]) -> Session:
        """The session's statements, with these tables."""
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
        """The columns' names."""
        found = _tables({"table": table})["table"]
        described = find_table(self._connection, found)
        return set(described.columns) if described else set()

    def statements_for(self, columns: set[str]) -> QueueStatements:  # noqa: ARG002 - the contract's
        """The same for all tables: they have had only one shape."""
        return QueueStatements()

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


def _tables(tables: Mapping[str, Destination]) -> dict[str, TableName]:
    # All are `TableName`s: they come from `addresses`.
    return {name: table for name, table in tables.items() if isinstance(table, TableName)}


def _creation_lock(qualified_name: str) -> int:
    """As the transport's `QueueCreator.CalculateLockId`."""
    digest = hashlib.sha256(qualified_name.encode("utf-16-le")).digest()
    return int.from_bytes(digest[:8], "little", signed=True)
