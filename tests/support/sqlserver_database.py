"""A SQL Server database of the tests' own, which is dropped in the end."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from duesweep.core.address import bracket_name
from duesweep.drivers.sqlserver.dsn import OdbcDsn, driver_library, odbc

if TYPE_CHECKING:
    import pyodbc

# A database whose DROP takes longer than this is left behind.
_DROP_SECONDS = 120


@dataclass(frozen=True, slots=True)
class SqlServerDatabase:
    """A database as its administrator sees it.

    `admin` writes. `reader` sees committed rows without waiting for batches that are under way,
    and without a say in how the sweeper's own sessions read.
    """

    name: str
    dsn: str
    admin: "pyodbc.Connection"
    reader: "pyodbc.Connection"

    def fetch(self, text: str, *values: object) -> list[Any]:
        return list(self.reader.execute(text, *values).fetchall())

    def execute(self, text: str, *values: object) -> int:
        return self.admin.execute(text, *values).rowcount

    def drop_tables(self) -> None:
        """Drop all tables: some servers look tables up the slower, the more there are."""
        tables = self.fetch(
            "SELECT QUOTENAME(TABLE_SCHEMA) + '.' + QUOTENAME(TABLE_NAME) AS name"
            " FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_TYPE = 'BASE TABLE'"
        )
        for table in tables:
            # Not all servers return long names as they are; the rest goes with its database.
            with suppress(odbc().Error):
                self.execute(f"DROP TABLE {table.name}")

    def create_schema(self, schema: str) -> None:
        """Create a schema where it is missing."""
        if not self.fetch("SELECT 1 FROM sys.schemas WHERE name = ?", schema):
            self.execute(f"CREATE SCHEMA {bracket_name(schema)}")

    @contextmanager
    def committed_at_once(self) -> "Iterator[pyodbc.Connection]":
        """`admin`; its changes are invisible to others before the block ends."""
        self.admin.autocommit = False
        try:
            yield self.admin
            self.admin.commit()
        finally:
            self.admin.rollback()
            self.admin.autocommit = True

    @contextmanager
    def transaction(self) -> "Iterator[pyodbc.Connection]":
        """A connection of its own with a transaction under way, rolled back at the end."""
        connection = odbc().connect(self.dsn, autocommit=False)
        try:
            yield connection
        finally:
            connection.rollback()
            connection.close()


@contextmanager
def new_database(
    dsn: str,
    master: "pyodbc.Connection",
    name: str,
    stand_in: str | None,
    options: Sequence[str] = (),
) -> Iterator[SqlServerDatabase]:
    """A database for the block. `options` are as ALTER DATABASE … SET takes them, or a collation:
    `COLLATE Turkish_CI_AS`.
    """
    collation = "".join(f" {one}" for one in options if one.startswith("COLLATE"))
    master.execute(f"CREATE DATABASE {bracket_name(name)}{collation}")
    try:
        for option in options:
            if not option.startswith("COLLATE"):
                master.execute(f"ALTER DATABASE {bracket_name(name)} SET {option}")
        own = _text(dsn, database=name)
        with closing(connect(own)) as admin, closing(connect(own)) as reader:
            if stand_in is None:
                admin.execute("ALTER DATABASE CURRENT SET ALLOW_SNAPSHOT_ISOLATION ON")
                reader.execute("SET TRANSACTION ISOLATION LEVEL SNAPSHOT")
            yield SqlServerDatabase(name, own, admin, reader)
    finally:
        _drop(master, name, stand_in)


def _drop(master: "pyodbc.Connection", name: str, stand_in: str | None) -> None:
    if stand_in is None:
        with suppress(odbc().Error):
            alter = f"ALTER DATABASE {bracket_name(name)} SET SINGLE_USER WITH ROLLBACK IMMEDIATE"
            master.execute(alter)
    try:
        when_unused(lambda: master.execute(f"DROP DATABASE {bracket_name(name)}"))
    except odbc().Error as error:
        # Unless the server is gone.
        if not error.args[0].startswith("08"):
            raise


def when_unused(drop: Callable[[], object]) -> None:
    """Drop what sessions use. One that has ended is there for a moment yet."""
    deadline = time.monotonic() + _DROP_SECONDS
    while True:
        try:
            drop()
        except odbc().Error as error:
            if error.args[0].startswith("08") or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def connect(dsn: str) -> "pyodbc.Connection":
    return odbc().connect(_text(dsn), autocommit=True, timeout=60)


def _text(dsn: str, **own: str) -> str:
    parsed = OdbcDsn.parse(dsn)
    driver = (
        {} if {"driver", "dsn", "filedsn"} & set(parsed.pairs) else {"Driver": driver_library()}
    )
    return OdbcDsn(parsed.pairs | own).text(**driver)


@contextmanager
def closing(connection: "pyodbc.Connection") -> "Iterator[pyodbc.Connection]":
    try:
        yield connection
    finally:
        connection.close()
