"""One session: statements from files, and how Spark reaches the same database."""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import ceil
from typing import Any

import pyodbc

from duesweep.core.timeouts import Limits
from duesweep.drivers.sqlserver.binding import Names, bound, groups, text_of
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep.drivers.sqlserver.errors import destination_errors
from duesweep.drivers.sqlserver.statements import BYTES, TEXT, SqlServerStatements, send
from duesweep.drivers.sqlserver.transactions import RawSession, drain
from duesweep.drivers.sqlserver.watch import SilenceWatch
from duesweep.errors import RefusedMessageError

_CLOSE_SECONDS = 2.0


class SqlServerConnection(SqlServerStatements):
    """One session, with time-outs on everything; `named` statements run on it."""

    def __init__(
        self, raw: pyodbc.Connection, dsn: OdbcDsn, watch: SilenceWatch, limits: Limits
    ) -> None:
        driver: str = raw.getinfo(pyodbc.SQL_DRIVER_NAME)
        # FreeTDS has no arrays of parameters.
        super().__init__(RawSession(raw, watch, "msodbcsql" in driver.lower()), {})
        self._dsn = dsn
        self.limits = limits
        for kind in (pyodbc.SQL_WCHAR, pyodbc.SQL_WVARCHAR, pyodbc.SQL_WLONGVARCHAR):
            raw.add_output_converter(kind, _text_of_wide)

    def __enter__(self) -> "SqlServerConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.go_on(_CLOSE_SECONDS)
        with suppress(pyodbc.Error):
            self._raw.close()
        self._watch.close()

    @contextmanager
    def patient(self, seconds: float) -> Iterator[None]:
        """While an answer may take so long."""
        limits, seconds_before = replace(self.limits, answer_seconds=seconds), self._raw.timeout
        self._raw.timeout = max(1, int(limits.statement_seconds))
        try:
            with self._watch.patient(seconds):
                yield
        finally:
            self._raw.timeout = seconds_before

    def script(self, text: str) -> None:
        """Run statements that return nothing and take no values."""
        self._run(text)

    def insert_messages(
        self, table: object, name: str, names: Names, rows: Sequence[tuple[str, bytes | None]]
    ) -> None:
        """Run the named statement, whose values are id, headers and body, for each of the rows.

        Raises `RefusedMessageError` where a row is at fault, or has not arrived; `DestinationError`
        where `table` is at fault.
        """
        text, order = text_of(name, ("body", "headers", "id"))
        if order != ["id", "headers", "body"]:
            raise ValueError(f"{name} takes {order}, not id, headers, body")
        ids = [str(uuid.uuid4()) for _ in rows]
        with destination_errors(table), self._watch.answer():
            cursor = self._impatient_cursor()
            try:
                last = _value_of(cursor, "last_message", names, {})
                cursor.fast_executemany = self._session.sends_arrays
                # Said beforehand: a body of None would go out as text, which no binary column
                # takes.
                cursor.setinputsizes([TEXT, TEXT, BYTES])
                for start, group in groups(rows):
                    self._watch.go_on()
                    numbered = zip(ids[start:], group, strict=False)
                    cursor.executemany(text.format(**names), [(i, *row) for i, row in numbered])
                    drain(cursor)
                self._watch.go_on()
                seen = {"ids": json.dumps(ids), "number": last}
            finally:
                cursor.close()
            arrived = self._count_arrived(names, seen)
        if arrived != len(rows):
            raise RefusedMessageError(
                f"Queue table {table} took {arrived} of {len(rows)} rows, and raised no error",
                advice="look for a trigger on it that drops rows",
            )

    def _impatient_cursor(self) -> pyodbc.Cursor:
        """For arrays of parameters: meanwhile pyodbc holds Python's lock, so that nobody watches,
        and the driver waits three times its time-out for a server that says nothing.
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
            send(self._session, cursor, *bound("count_arrived", names, seen))
            return int(cursor.fetchval())
        finally:
            cursor.close()

    def jdbc_address(self, limits: Limits, url: str | None = None) -> tuple[str, dict[str, str]]:
        """JDBC URL (`url`, where it is given) and connection properties of the server that this
        session is connected to.
        """
        own = jdbc_properties(limits)
        if url is not None:
            return url, self._dsn.credentials() | own
        url, properties = self._dsn.jdbc()
        with self._cursor() as cursor:
            (database,) = cursor.execute("SELECT DB_NAME()").fetchone()
        return url, {"databaseName": database, **properties, **own}


def jdbc_properties(limits: Limits) -> dict[str, str]:
    """What a JDBC session is opened with."""
    return {
        "driver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
        "applicationName": "duesweep plan",
        # In seconds, but for two in milliseconds.
        "loginTimeout": f"{ceil(limits.connect_seconds)}",
        "queryTimeout": f"{ceil(limits.statement_seconds)}",
        "cancelQueryTimeout": f"{ceil(limits.connect_seconds)}",
        "socketTimeout": f"{round(limits.answer_seconds * 1_000)}",
        "lockTimeout": f"{round(limits.lock_seconds * 1_000)}",
    }


def _value_of(cursor: pyodbc.Cursor, name: str, names: Names, values: Mapping[str, object]) -> Any:
    text, parameters = bound(name, names, values)
    return cursor.execute(text, parameters).fetchval()


def _text_of_wide(raw: bytes | None) -> str | None:
    """What is stored as UTF-16. Half a surrogate pair, which .NET can store, becomes an escape that
    no JSON has: the message is poison, and no reason for its task to fail.
    """
    return None if raw is None else raw.decode("utf-16-le", "backslashreplace")
