"""One session: named statements, and the JDBC address of the same database."""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Any

from duesweep.core.timeouts import Limits
from duesweep.drivers.sqlserver.binding import Names, bind, group_rows, text_of
from duesweep.drivers.sqlserver.dsn import OdbcDsn, split_jdbc_url
from duesweep.drivers.sqlserver.errors import destination_errors
from duesweep.drivers.sqlserver.library import odbc
from duesweep.drivers.sqlserver.statements import BYTES, TEXT, SqlServerStatements, send
from duesweep.drivers.sqlserver.transactions import RawSession, drain
from duesweep.drivers.sqlserver.watch import SilenceWatch
from duesweep.errors import RefusedMessageError

if TYPE_CHECKING:
    import pyodbc

_CLOSE_SECONDS = 2.0


class SqlServerConnection(SqlServerStatements):
    """One session, with time-outs on everything; `named` statements run on it."""

    def __init__(
        self, raw: "pyodbc.Connection", dsn: OdbcDsn, watch: SilenceWatch, limits: Limits
    ) -> None:
        driver: str = raw.getinfo(odbc().SQL_DRIVER_NAME)
        # FreeTDS has no arrays of parameters.
        super().__init__(RawSession(raw, watch, "msodbcsql" in driver.lower()), {})
        self._dsn = dsn
        self.limits = limits
        for kind in (odbc().SQL_WCHAR, odbc().SQL_WVARCHAR, odbc().SQL_WLONGVARCHAR):
            raw.add_output_converter(kind, _decode_utf16)

    def __enter__(self) -> "SqlServerConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.restart_timer(_CLOSE_SECONDS)
        with suppress(odbc().Error):
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

    def script(self, text: str) -> None:
        """Run statements that return nothing and take no values."""
        self._run(text)

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
            with self._short_time_out():
                last = self._fetch_value("last_message", names, {})
                self._insert(text.format(**names), ids, rows)
                self._watch.restart_timer()
            seen = {"ids": json.dumps(ids), "number": last}
            arrived = int(self._fetch_value("count_arrived", names, seen))
        if arrived != len(rows):
            raise RefusedMessageError(
                f"Queue table {table} took {arrived} of {len(rows)} rows, and raised no error",
                advice="look for a trigger on it that drops rows",
            )

    def _insert(
        self, text: str, ids: Sequence[str], rows: Sequence[tuple[str, bytes | None]]
    ) -> None:
        with self._session.keep_cursor(text) as prepared:
            cursor = prepared.cursor
            cursor.fast_executemany = self._session.sends_arrays
            # Said beforehand: a body of None would go out as text, which no binary column takes.
            cursor.setinputsizes([TEXT, TEXT, BYTES])
            for start, group in group_rows(rows):
                self._watch.restart_timer()
                numbered = zip(ids[start:], group, strict=False)
                cursor.executemany(prepared.text, [(i, *row) for i, row in numbered])
                drain(cursor)

    @contextmanager
    def _short_time_out(self) -> Iterator[None]:
        """In the block, cursors have a third of the time-out. While an array of parameters is sent,
        pyodbc holds Python's lock, so the watch cannot run, and the driver waits three times its
        time-out for a silent server.
        """
        patience = self._raw.timeout
        self._raw.timeout = max(1, int(self.limits.answer_seconds / 3))
        try:
            yield
        finally:
            self._raw.timeout = patience

    def _fetch_value(self, name: str, names: Names, values: Mapping[str, object]) -> Any:
        text, parameters = bind(name, names, values)
        with self._session.keep_cursor(text) as prepared:
            send(self._session, prepared, parameters)
            value = prepared.cursor.fetchval()
            drain(prepared.cursor)
        return value

    def jdbc_address(self, limits: Limits, url: str | None = None) -> tuple[str, dict[str, str]]:
        """JDBC URL (`url`, if given) and connection properties of the server that this session is
        connected to.
        """
        own = jdbc_properties(limits)
        if url is not None:
            address, given = split_jdbc_url(url)
            own = self._dsn.credentials() | own
            # The driver takes names in any case.
            taken = {name.lower() for name in own}
            return address, {k: v for k, v in given.items() if k.lower() not in taken} | own
        url, properties = self._dsn.jdbc()
        with self._cursor() as cursor:
            (database,) = cursor.execute("SELECT DB_NAME()").fetchone()
        return url, {"databaseName": database, **properties, **own}


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


def _decode_utf16(raw: bytes | None) -> str | None:
    """What is stored as UTF-16. Half a surrogate pair, which .NET can store, becomes an escape that
    no JSON has: the message is poison, and no reason for its task to fail.
    """
    return None if raw is None else raw.decode("utf-16-le", "backslashreplace")
