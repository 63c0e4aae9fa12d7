"""One session: statements from files, and how Spark reaches the same database."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import pyodbc

from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep.drivers.sqlserver.errors import destination_errors, mapped
from duesweep.errors import (
    DestinationError,
    MessageError,
    StoreError,
    TransactionLostError,
)
from duesweep.sql import statement

Names = Mapping[str, str]

# A variable of the statement's own begins with a capital letter (@Now), a value's with a small one.
_VALUE = re.compile(r"(?<![@\w])@([a-z]\w*)")
_COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)
# What the driver gathers of a group of rows before it sends them: rows times the longest.
_GATHERED_BYTES = 16_000_000
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
            return int(cursor.execute(*_bound(name, names, values)).rowcount)

    def rows(self, name: str, names: Names, /, **values: object) -> list[Any]:
        """The rows that the named statement returns, with their columns as attributes."""
        with self._cursor() as cursor:
            cursor.execute(*_bound(name, names, values))
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
            cursor.execute(*_bound(name, names, values))
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
        text, order = _text_of(name, tuple(sorted(rows[0])))
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
        text, order = _text_of(name, ("body", "headers"))
        if order == ["body", "headers"]:
            raise ValueError(f"{name} takes headers before body")
        with destination_errors(table):
            cursor = self._raw.cursor()
            try:
                cursor.fast_executemany = self._sends_arrays
                # Said beforehand: a body of None would go out as text, which no binary column
                # takes.
                cursor.setinputsizes([(pyodbc.SQL_WVARCHAR, 0, 0), (pyodbc.SQL_VARBINARY, 0, 0)])
                for group in _groups(rows):
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


def key_list(keys: Iterable[str]) -> tuple[str | None, str]:
    """Keys as one text for STRING_SPLIT, None for no keys, and what separates them in it: a
    control character that none of them holds.
    """
    listed = list(keys)
    separator = next(c for c in map(chr, range(31, -1, -1)) if not any(c in k for k in listed))
    return (separator.join(listed) if listed else None), separator


def literal(value: str) -> str:
    """`value` as an SQL literal, for the queries that Spark runs over JDBC."""
    return "N'" + value.replace("'", "''") + "'"


def _groups(
    rows: Sequence[tuple[str, bytes | None]],
) -> Iterator[Sequence[tuple[str, bytes | None]]]:
    """`rows` in groups whose longest row, times their number, is what may be gathered."""
    start, longest = 0, 0
    for index, (headers, body) in enumerate(rows):
        length = 2 * len(headers) + len(body or b"")
        grown = max(longest, length)
        if index > start and grown * (index - start + 1) > _GATHERED_BYTES:
            yield rows[start:index]
            start, grown = index, length
        longest = grown
    if start < len(rows):
        yield rows[start:]


def _bound(name: str, names: Names, values: Mapping[str, object]) -> tuple[str, list[object]]:
    text, order = _text_of(name, tuple(sorted(values)))
    return text.format(**names), [values[value] for value in order]


@cache
def _text_of(name: str, values: tuple[str, ...]) -> tuple[str, list[str]]:
    """The named statement with a marker for each value, and the values' order."""
    text = _COMMENT.sub("", statement("sqlserver", name))
    order = [found[1] for found in _VALUE.finditer(text)]
    if set(order) != set(values):
        raise ValueError(f"{name} takes {sorted(set(order))}, not {list(values)}")
    return _VALUE.sub("?", text), order
