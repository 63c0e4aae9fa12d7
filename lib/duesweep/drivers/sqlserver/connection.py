"""One session: named statements, and the JDBC address of the same database."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import ceil
from typing import Any

import pyodbc

from duesweep.core.timeouts import Limits
from duesweep.drivers.sqlserver.binding import Names, bind, describe_statement, group_rows, text_of
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep.drivers.sqlserver.errors import destination_errors, number_of
from duesweep.drivers.sqlserver.transactions import Transactions, drain
from duesweep.drivers.sqlserver.watch import SilenceWatch
from duesweep.errors import RefusedMessageError, StoreError

_TEXT, _BYTES = (pyodbc.SQL_WVARCHAR, 0, 0), (pyodbc.SQL_VARBINARY, 0, 0)
_LONG_TEXT, _LONG_BYTES = 2_000, 8_000
_CLOSE_SECONDS = 2.0


class SqlServerConnection(Transactions):
    """One session, with time-outs on everything. It runs the named statements of `duesweep.sql`;
    `names` are the quoted identifiers for the braces in a statement.
    """

    def __init__(
        self, raw: pyodbc.Connection, dsn: OdbcDsn, watch: SilenceWatch, limits: Limits
    ) -> None:
        super().__init__(raw, watch)
        self._dsn = dsn
        self.limits = limits
        driver: str = raw.getinfo(pyodbc.SQL_DRIVER_NAME)
        for kind in (pyodbc.SQL_WCHAR, pyodbc.SQL_WVARCHAR, pyodbc.SQL_WLONGVARCHAR):
            raw.add_output_converter(kind, _decode_utf16)
        # FreeTDS has no arrays of parameters.
        self._sends_arrays = "msodbcsql" in driver.lower()

    def __enter__(self) -> "SqlServerConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.restart_timer(_CLOSE_SECONDS)
        with suppress(pyodbc.Error):
            self._raw.close()
        self._watch.close()

    @contextmanager
    def wait_longer(self, seconds: float) -> Iterator[None]:
        """In the block, one answer may take `seconds`."""
        limits, seconds_before = replace(self.limits, answer_seconds=seconds), self._raw.timeout
        self._raw.timeout = max(1, int(limits.statement_seconds))
        try:
            with self._watch.wait_longer(seconds):
                yield
        finally:
            self._raw.timeout = seconds_before

    def execute(self, name: str, names: Names, /, **values: object) -> int:
        """Run the named statement. Returns how many rows it touched."""
        with self._cursor(describe_statement(name, names)) as cursor:
            self._send(cursor, name, names, values)
            count = int(cursor.rowcount)
            drain(cursor)
        return count

    def rows(self, name: str, names: Names, /, **values: object) -> list[Any]:
        """The rows that the named statement returns, with their columns as attributes."""
        with self._cursor(describe_statement(name, names)) as cursor:
            self._send(cursor, name, names, values)
            # Procedures and assignments return results without rows before the rows.
            while cursor.description is None and cursor.nextset():
                pass
            rows = list(cursor.fetchall())
            drain(cursor)
        return rows

    def row(self, name: str, names: Names, /, **values: object) -> Any:
        """The only row that the named statement returns."""
        (row,) = self.rows(name, names, **values)
        return row

    def read_while(
        self, wanted: Callable[[Any], bool], name: str, names: Names, /, **values: object
    ) -> tuple[list[Any], bool]:
        """Read rows of the named statement, up to and with the first that is not `wanted`. Also
        returns whether these are all rows.
        """
        rows: list[Any] = []
        with self._cursor(describe_statement(name, names)) as cursor:
            self._send(cursor, name, names, values)
            while row := cursor.fetchone():
                rows.append(row)
                self._watch.restart_timer()
                if not wanted(row):
                    return rows, cursor.fetchone() is None
        return rows, True

    def error_number(self, name: str, names: Names) -> int | None:
        """The number of the error that the named statement causes; None if it causes none. The
        statement must change nothing.
        """
        try:
            with self.transaction():
                self.execute(name, names)
        except StoreError as error:
            return number_of(error.__cause__) if isinstance(error.__cause__, pyodbc.Error) else None
        return None

    def script(self, text: str) -> None:
        """Run statements that return nothing and take no values."""
        self._run(text)

    def execute_many(self, name: str, names: Names, rows: Sequence[Mapping[str, object]]) -> None:
        """Run the named statement once for each row of values; all rows have the same names."""
        if not rows:
            return
        text, order = text_of(name, tuple(sorted(rows[0])))
        with self._cursor(describe_statement(name, names)) as cursor:
            cursor.executemany(
                text.format(**names), [[row[value] for value in order] for row in rows]
            )

    def insert_messages(
        self, table: object, name: str, names: Names, rows: Sequence[tuple[str, bytes | None]]
    ) -> None:
        """Run the named statement for each row; its values are id, headers and body.

        Raises `RefusedMessageError` where a row is at fault or did not arrive, `DestinationError`
        where `table` is at fault.
        """
        text, order = text_of(name, ("body", "headers", "id"))
        if order != ["id", "headers", "body"]:
            raise ValueError(f"{name} takes {order}, not id, headers, body")
        ids = [str(uuid.uuid4()) for _ in rows]
        with destination_errors(table), self._watch.watch_answer():
            cursor = self._open_short_cursor()
            try:
                last = _fetch_value(cursor, "last_message", names, {})
                cursor.fast_executemany = self._sends_arrays
                # Without the types, a body of None would be sent as text, and a binary column
                # refuses that.
                cursor.setinputsizes([_TEXT, _TEXT, _BYTES])
                for start, group in group_rows(rows):
                    self._watch.restart_timer()
                    numbered = zip(ids[start:], group, strict=False)
                    cursor.executemany(text.format(**names), [(i, *row) for i, row in numbered])
                    drain(cursor)
                self._watch.restart_timer()
                seen = {"ids": json.dumps(ids), "number": last}
            finally:
                cursor.close()
            arrived = self._count_arrived(names, seen)
        if arrived != len(rows):
            raise RefusedMessageError(
                f"Queue table {table} took {arrived} of {len(rows)} rows, and raised no error",
                advice="look for a trigger on it that drops rows",
            )

    def _open_short_cursor(self) -> pyodbc.Cursor:
        """A cursor for arrays of parameters, with a third of the time-out. Meanwhile pyodbc holds
        Python's lock, so the watch cannot run, and the driver waits three times its time-out for
        a silent server.
        """
        patience = self._raw.timeout
        self._raw.timeout = max(1, int(self.limits.answer_seconds / 3))
        try:
            return self._raw.cursor()
        finally:
            self._raw.timeout = patience

    def _count_arrived(self, names: Names, seen: Mapping[str, object]) -> int:
        cursor = self._raw.cursor()
        try:
            self._send(cursor, "count_arrived", names, seen)
            return int(cursor.fetchval())
        finally:
            cursor.close()

    def jdbc_address(self, limits: Limits, url: str | None = None) -> tuple[str, dict[str, str]]:
        """JDBC URL (`url`, if given) and connection properties of the server that this session is
        connected to.
        """
        own = jdbc_properties(limits)
        if url is not None:
            return url, self._dsn.credentials() | own
        url, properties = self._dsn.jdbc()
        with self._cursor() as cursor:
            (database,) = cursor.execute("SELECT DB_NAME()").fetchone()
        return url, {"databaseName": database, **properties, **own}

    def _send(
        self, cursor: pyodbc.Cursor, name: str, names: Names, values: Mapping[str, object]
    ) -> None:
        text, parameters = bind(name, names, values)
        # FreeTDS declares long values correctly itself, and refuses these types.
        if self._sends_arrays:
            cursor.setinputsizes([_declare(value) for value in parameters])
        cursor.execute(text, parameters)


def jdbc_properties(limits: Limits) -> dict[str, str]:
    """Connection properties of a JDBC session."""
    return {
        "driver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
        "applicationName": "duesweep plan",
        # In seconds; socketTimeout and lockTimeout in milliseconds.
        "loginTimeout": f"{ceil(limits.connect_seconds)}",
        "queryTimeout": f"{ceil(limits.statement_seconds)}",
        "cancelQueryTimeout": f"{ceil(limits.connect_seconds)}",
        "socketTimeout": f"{round(limits.answer_seconds * 1_000)}",
        "lockTimeout": f"{round(limits.lock_seconds * 1_000)}",
    }


def _fetch_value(
    cursor: pyodbc.Cursor, name: str, names: Names, values: Mapping[str, object]
) -> Any:
    text, parameters = bind(name, names, values)
    return cursor.execute(text, parameters).fetchval()


def _declare(value: object) -> tuple[int, int, int] | None:
    """The type to declare for a parameter; None: ODBC's own choice. For long values that would be
    `ntext` or `image`, and few functions take these types.
    """
    if isinstance(value, str) and len(value) > _LONG_TEXT:
        return _TEXT
    return _BYTES if isinstance(value, bytes) and len(value) > _LONG_BYTES else None


def _decode_utf16(raw: bytes | None) -> str | None:
    """Decode UTF-16 text. Half of a surrogate pair, which .NET can store, becomes an escape that is
    not valid JSON. So the message is poison, and its task does not fail.
    """
    return None if raw is None else raw.decode("utf-16-le", "backslashreplace")
