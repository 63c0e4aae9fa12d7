"""Queue tables of the SQL Server transport, for its own operations."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from duesweep.core.address import SqlServerAddresses, SqlServerTable, bracket_name
from duesweep.core.errors import ConfigError, StoreError
from duesweep.core.policy import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.sqlserver.binding import creation, script, table_names
from duesweep.drivers.sqlserver.catalog import find_table
from duesweep.drivers.sqlserver.session import SqlServerSession, connect
from duesweep.drivers.statements import Session
from duesweep.queues.base import Destination
from duesweep.queues.transport.session import QueueStatements, Transport, TransportSession

_OF_VERSION_1 = {"correlationid", "replytoaddress"}


def sqlserver_transport(
    dsn: str,
    addresses: SqlServerAddresses,
    delayed: SqlServerTable | None = None,
    *,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> Transport:
    """Queue tables of one server, in the database of `dsn` and in others, and the endpoint's
    delayed table if it is there too.
    """

    @contextmanager
    def open_session() -> Iterator[TransportSession]:
        with connect(dsn, timeouts.driver) as connection:
            yield SqlServerTransportSession(connection, addresses, delayed)

    return Transport(addresses, open_session, _script)


class SqlServerTransportSession(TransportSession):
    """Names are bracketed three-part names, values are bound."""

    def __init__(
        self,
        connection: SqlServerSession,
        addresses: SqlServerAddresses,
        delayed: SqlServerTable | None = None,
    ) -> None:
        super().__init__(addresses, delayed)
        self._connection = connection

    def transaction(self) -> AbstractContextManager[None]:
        return self._connection.transaction()

    def named(self, tables: Mapping[str, Destination]) -> Session:
        return self._connection.named(table_names(**_tables(tables)))

    def create(self, name: str, role: str, table: Destination) -> None:
        """Run it. The statement takes the transport's application lock for this table."""
        assert isinstance(table, SqlServerTable)  # it comes from `addresses`
        try:
            self._connection.script(creation(name, **{role: table}))
        except StoreError as error:
            if error.transient:
                raise
            raise ConfigError(
                f"{table.sql} cannot be created or altered: {error}",
                advice=(
                    f"check that there is a schema {bracket_name(table.schema)} in database "
                    f"{bracket_name(table.catalog)}, and that this user has CREATE TABLE, and "
                    "ALTER on the schema; or correct the address"
                ),
            ) from error

    def columns(self, table: Destination) -> set[str]:
        assert isinstance(table, SqlServerTable)  # ours: it comes from these addresses
        found = find_table(self._connection, table)
        return {name.lower() for name in found.columns} if found else set()

    def statements_for(self, columns: set[str]) -> QueueStatements:
        """Tables of older versions have a column Recoverable, which takes no NULL, and two in which
        senders of version 1 put what others put into headers.
        """
        return QueueStatements(
            send="send_recoverable" if "recoverable" in columns else "send",
            receive="receive_with_columns" if columns >= _OF_VERSION_1 else "receive",
        )

    def writers_zone(self) -> AbstractContextManager[None]:
        """On SQL Server all writers store Due in UTC."""
        return self._connection.transaction()


def _script(names: Sequence[str], role: str, table: Destination) -> str:
    """In batches for the command-line tools of SQL Server."""
    assert isinstance(table, SqlServerTable)  # it comes from `addresses`
    return script(table.catalog, [creation(name, **{role: table}) for name in names])


def _tables(tables: Mapping[str, Destination]) -> dict[str, SqlServerTable]:
    # Ours: they come from these addresses.
    return {name: table for name, table in tables.items() if isinstance(table, SqlServerTable)}
