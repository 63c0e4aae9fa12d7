"""One session: statements from files, and how Spark reaches the same database."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyodbc

from duesweep.drivers.sqlserver.binding import Names, bound, groups, text_of
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep.drivers.sqlserver.errors import destination_errors, mapped
from duesweep.errors import (
    DestinationError,
    MessageError,
    StoreError,
    TransactionLostError,
)

_COMMITTABLE = 1


class Connection:
    """One session, with time-outs on everything, each statement a file of SQL.

    `names` are the identifiers that a statement names in braces, quoted already.
    """

    def __init__(self, raw: pyodbc.Connection, dsn: OdbcDsn) -> None:
        self._raw = raw
        self._dsn = dsn
        self._depth = 0
        driver: str = raw.getinfo(pyodbc.SQL_DRIVER_NAME)
        # FreeTDS has no arrays of parameters.
        self._sends_arrays = "msodbcsql" in driver.lower()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(pyodbc.Error):
            self._raw.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction, or within one a savepoint; committed at the end of the block.

        Raises `TransactionLostError` where the server has undone what a savepoint was to keep.
        """
        if self._depth:
            with self._savepoint():
                yield
            return
        self.begin()
        try:
            yield
            self.commit()
        except BaseException:
            self.rollback()
            raise

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction has been begun, and neither committed nor rolled back."""
        return self._depth > 0

    def begin(self) -> None:
        """Begin a transaction that `commit` or `rollback` ends, unless one is under way."""
        if not self._depth:
            self._run("BEGIN TRANSACTION")
            self._depth = 1

    def commit(self) -> None:
        """Commit what was begun, if anything."""
        if self._depth:
            self._depth = 0
            self._run("COMMIT TRANSACTION")

    def rollback(self) -> None:
        """Roll back what was begun, if anything; a session that is gone has done so already."""
        self._depth = 0
        with suppress(StoreError):
            self._run("IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION")

    def execute(self, name: str, names: Names, /, **values: object) -> int:
        """Run the named statement; how many rows it touched."""
        with self._cursor() as cursor:
            return int(cursor.execute(*bound(name, names, values)).rowcount)

    def rows(self, name: str, names: Names, /, **values: object) -> list[Any]:
        """The rows that the named statement returns, with their columns as attributes."""
        with self._cursor() as cursor:
            cursor.execute(*bound(name, names, values))
            # What a procedure or an assignment answers comes before the rows, and has none.
            while cursor.description is None and cursor.nextset():
                pass
            return list(cursor.fetchall())

    def row(self, name: str, names: Names, /, **values: object) -> Any:
        """The only row that the named statement returns."""
        (row,) = self.rows(name, names, **values)
        return row

    def read_while(
        self, wanted: Callable[[Any], bool], name: str, names: Names, /, **values: object
    ) -> tuple[list[Any], bool]:
        """Rows of the named statement, one at a time, up to the first after which no more are
        `wanted`; and whether these are all.
        """
        rows: list[Any] = []
        with self._cursor() as cursor:
            cursor.execute(*bound(name, names, values))
            while row := cursor.fetchone():
                rows.append(row)
                if not wanted(row):
                    return rows, cursor.fetchone() is None
        return rows, True

    def script(self, text: str) -> None:
        """Run statements that return nothing and take no values."""
        self._run(text)

    def execute_many(self, name: str, names: Names, rows: Sequence[Mapping[str, object]]) -> None:
        """Run the named statement once for each of these sets of values, all of the same names."""
        if not rows:
            return
        text, order = text_of(name, tuple(sorted(rows[0])))
        with self._cursor() as cursor:
            cursor.executemany(
                text.format(**names), [[row[value] for value in order] for row in rows]
            )

    def insert_messages(
        self, table: object, name: str, names: Names, rows: Sequence[tuple[str, bytes | None]]
    ) -> None:
        """Run the named statement, whose two values are headers and body, for each of the rows.

        Raises `RefusedMessageError` where a row is at fault, `DestinationError` where `table` is.
        """
        text, order = text_of(name, ("body", "headers"))
        if order == ["body", "headers"]:
            raise ValueError(f"{name} takes headers before body")
        with destination_errors(table):
            cursor = self._raw.cursor()
            try:
                cursor.fast_executemany = self._sends_arrays
                # Said beforehand: a body of None would go out as text, which no binary column
                # takes.
                cursor.setinputsizes([(pyodbc.SQL_WVARCHAR, 0, 0), (pyodbc.SQL_VARBINARY, 0, 0)])
                for group in groups(rows):
                    cursor.executemany(text.format(**names), group)
            finally:
                cursor.close()

    def is_alive_in_transaction(self) -> bool:
        """Whether a transaction is under way that can still be committed."""
        with self._cursor() as cursor:
            (state,) = cursor.execute("SELECT XACT_STATE()").fetchone()
        return bool(state == _COMMITTABLE)

    def jdbc_address(self, url: str | None = None) -> tuple[str, dict[str, str]]:
        """JDBC URL (`url`, where it is given) and connection properties of the server that this
        session is connected to.
        """
        if url is not None:
            return url, self._dsn.credentials() | JDBC_PROPERTIES
        url, properties = self._dsn.jdbc()
        with self._cursor() as cursor:
            (database,) = cursor.execute("SELECT DB_NAME()").fetchone()
        return url, {"databaseName": database, **properties, **JDBC_PROPERTIES}

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        name = f"duesweep_{self._depth}"
        self._run(f"SAVE TRANSACTION {name}")
        self._depth += 1
        try:
            yield
        except Exception as error:
            self._go_back(name, error)
            raise
        finally:
            self._depth -= 1

    def _go_back(self, name: str, error: Exception) -> None:
        if isinstance(error, TransactionLostError):
            return
        if not self.is_alive_in_transaction():
            is_destinations = isinstance(error, DestinationError | MessageError)
            raise TransactionLostError(
                str(error), destination_is_at_fault=is_destinations
            ) from error
        self._run(f"ROLLBACK TRANSACTION {name}")

    def _run(self, text: str) -> None:
        with self._cursor() as cursor:
            cursor.execute(text)

    @contextmanager
    def _cursor(self) -> Iterator[pyodbc.Cursor]:
        with mapped():
            cursor = self._raw.cursor()
            try:
                yield cursor
            finally:
                with suppress(pyodbc.Error):
                    cursor.close()


JDBC_PROPERTIES = {
    "driver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    "applicationName": "duesweep plan",
    # Time-outs here too: seconds, but lockTimeout, in milliseconds.
    "loginTimeout": "10",
    "queryTimeout": "600",
    "lockTimeout": "30000",
}
