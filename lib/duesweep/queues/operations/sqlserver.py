"""The operations on SQL Server."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from duesweep.core.address import SqlServerAddresses, SqlServerTable, bracket_name
from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.sqlserver import SqlServerConnection, connect
from duesweep.errors import ConfigError, StoreError
from duesweep.queues.base import Destination
from duesweep.sql import statement

# Names of application locks have at most 255 characters, and "_lock" is added to them.
_LOCK_LENGTH = 240


@dataclass(frozen=True, slots=True)
class SqlServerTransport:
    """Queue tables of one server, in the database of `dsn` and in others, and the endpoint's
    delayed table if it is there too.
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
    """Names are bracketed three-part names, values are bound."""

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
        """Run it. The statement takes the transport's application lock for this table."""
        assert isinstance(table, SqlServerTable)  # it comes from `addresses`
        try:
            self._connection.script(statement("sqlserver", name).format(**names({role: table})))
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
        """The columns' names."""
        assert isinstance(table, SqlServerTable)  # it comes from `addresses`
        rows = self._connection.rows(
            "describe_table",
            {"catalog": bracket_name(table.catalog)},
            schema=table.schema,
            table=table.table,
        )
        return {str(row.name).lower() for row in rows}

    def send_statement(self, columns: set[str]) -> str:
        """Tables of older versions have a column Recoverable, which takes no NULL."""
        return "send_recoverable" if "recoverable" in columns else "send"

    def writers_zone(self) -> AbstractContextManager[None]:
        """On SQL Server all writers store Due in UTC."""
        return self._connection.transaction()


def names(tables: Mapping[str, Destination]) -> dict[str, str]:
    """The values for the braces in statements: for each table its name, its name inside an
    N'...' literal, and the name of the transport's lock for it.
    """
    filled: dict[str, str] = {}
    for role, table in tables.items():
        assert isinstance(table, SqlServerTable)  # it comes from `addresses`
        lock = table.sql[:_LOCK_LENGTH]
        filled |= {
            role: table.sql,
            f"{role}_literal": _double_quotes(table.sql),
            f"{role}_lock": f"{_double_quotes(lock)}_lock",
        }
    return filled


def _double_quotes(name: str) -> str:
    return name.replace("'", "''")
