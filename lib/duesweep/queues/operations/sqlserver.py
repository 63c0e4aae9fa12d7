"""The operations on SQL Server."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from duesweep.core.address import SqlServerAddresses, SqlServerTable, bracket_name
from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.sqlserver import SqlServerConnection, connect
from duesweep.drivers.sqlserver.catalog import find_table
from duesweep.errors import ConfigError, StoreError
from duesweep.queues.base import Destination
from duesweep.sql import statement

# The names of application locks end after 255 characters, of which "_lock" takes five.
_LOCK_LENGTH = 240


@dataclass(frozen=True, slots=True)
class SqlServerTransport:
    """Queue tables of one server, in the database of `dsn` and in others, and beside them perhaps
    the endpoint's delayed table.
    """

    dsn: str = field(repr=False)
    addresses: SqlServerAddresses
    delayed: SqlServerTable | None = None
    timeouts: Timeouts = DEFAULT_TIMEOUTS

    @contextmanager
    def connect(self) -> Iterator["SqlServerDialect"]:
        """A session of its own."""
        with connect(self.dsn, self.timeouts.driver) as connection:
            yield SqlServerDialect(connection, self)


class SqlServerDialect:
    """Names are bracket_name three-part names, values are bound."""

    def __init__(self, connection: SqlServerConnection, transport: SqlServerTransport) -> None:
        self.addresses = transport.addresses
        self.delayed = transport.delayed
        self._connection = connection

    def transaction(self) -> AbstractContextManager[None]:
        """A transaction; nested, a savepoint."""
        return self._connection.transaction()

    def execute(self, name: str, tables: Mapping[str, Destination], **values: object) -> int:
        """Run the named statement."""
        return self._connection.execute(name, names(tables), **values)

    def rows(self, name: str, tables: Mapping[str, Destination], **values: object) -> list[Any]:
        """The rows that the named statement returns."""
        return self._connection.rows(name, names(tables), **values)

    def create(self, name: str, role: str, table: Destination) -> None:
        """Under an application lock of the transport's name for this table, which the statement
        itself takes.
        """
        assert isinstance(table, SqlServerTable)  # ours: it comes from these addresses
        try:
            self._connection.script(statement("sqlserver", name).format(**names({role: table})))
        except StoreError as error:
            if error.transient:
                raise
            raise ConfigError(
                f"{table.sql} cannot be created or altered: {error}",
                advice=(
                    f"see that there is a schema {bracket_name(table.schema)} in database "
                    f"{bracket_name(table.catalog)}, and that this user has CREATE TABLE, and "
                    "ALTER on the schema; or correct the address"
                ),
            ) from error

    def columns(self, table: Destination) -> set[str]:
        """The columns' names."""
        assert isinstance(table, SqlServerTable)  # ours: it comes from these addresses
        found = find_table(self._connection, table)
        return {name.lower() for name in found.columns} if found else set()

    def send_statement(self, columns: set[str]) -> str:
        """Tables of older versions have a column Recoverable, which takes no NULL."""
        return "send_recoverable" if "recoverable" in columns else "send"

    def writers_zone(self) -> AbstractContextManager[None]:
        """Due is in UTC here, whoever writes it."""
        return self._connection.transaction()


def names(tables: Mapping[str, Destination]) -> dict[str, str]:
    """What the statements have in braces: for each table its name, the same as the inside of an
    N'...' literal, and that of the transport's lock for it.
    """
    filled: dict[str, str] = {}
    for role, table in tables.items():
        assert isinstance(table, SqlServerTable)  # ours: it comes from these addresses
        lock = table.sql[:_LOCK_LENGTH]
        filled |= {
            role: table.sql,
            f"{role}_literal": _quoted(table.sql),
            f"{role}_lock": f"{_quoted(lock)}_lock",
        }
    return filled


def _quoted(name: str) -> str:
    return name.replace("'", "''")
