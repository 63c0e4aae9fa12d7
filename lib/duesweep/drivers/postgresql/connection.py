"""One session: named statements, COPY, and the JDBC address of the same database."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import ceil
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import namedtuple_row

from duesweep.core.address import TableName
from duesweep.core.timeouts import Limits
from duesweep.drivers.postgresql.bounded import BoundedConnection
from duesweep.drivers.postgresql.copy import copy_chunks
from duesweep.drivers.postgresql.errors import destination_errors, map_errors
from duesweep.drivers.postgresql.settings import settings_query, time_outs
from duesweep.errors import ConfigError, RefusedMessageError
from duesweep.sql import statement

# Tables, or SQL in the place of a name.
Names = Mapping[str, TableName | str]

_JDBC_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey")


class PostgreSqlConnection:
    """One session in UTC, with time-outs on everything. It runs the named statements of
    `duesweep.sql`; `names` are the identifiers for the braces in a statement.
    """

    def __init__(self, raw: BoundedConnection, limits: Limits) -> None:
        self.limits = limits
        self._raw = raw

    def __enter__(self) -> "PostgreSqlConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    @contextmanager
    def wait_longer(self, seconds: float) -> Iterator[None]:
        """A transaction in which one answer may take `seconds`."""
        limits = replace(self.limits, answer_seconds=seconds)
        with self.transaction():
            self._set_statement_timeout(limits)
            self._raw.answer_seconds = seconds
            try:
                yield
            finally:
                self._raw.answer_seconds = self.limits.answer_seconds

    def _set_statement_timeout(self, limits: Limits) -> None:
        milliseconds = round(limits.statement_seconds * 1_000)
        with map_errors():
            self._raw.execute(f"SET LOCAL statement_timeout = {milliseconds}".encode())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction, or a savepoint inside one; committed at the end of the block."""
        with map_errors(), self._raw.transaction():
            yield

    def begin(self) -> None:
        """Begin a transaction that `commit` ends, unless one is under way."""
        if self._raw.info.transaction_status == TransactionStatus.IDLE:
            with map_errors():
                self._raw.execute("BEGIN")

    def commit(self) -> None:
        """Commit what was begun."""
        with map_errors():
            self._raw.execute("COMMIT")

    def rollback(self) -> None:
        """Roll back what was begun, if anything."""
        with map_errors():
            self._raw.rollback()

    def execute(self, name: str, names: Names, **values: object) -> int:
        """Run the named statement. Returns how many rows it touched."""
        with map_errors(_describe_statement(name, names)):
            return self._raw.execute(_fill_names(name, names), values, binary=True).rowcount

    def rows(self, name: str, names: Names, **values: object) -> list[Any]:
        """The rows that the named statement returns, as named tuples."""
        with (
            map_errors(_describe_statement(name, names)),
            self._raw.cursor(row_factory=namedtuple_row, binary=True) as cursor,
        ):
            return cursor.execute(_fill_names(name, names), values).fetchall()

    def row(self, name: str, names: Names, **values: object) -> Any:
        """The only row that the named statement returns."""
        (row,) = self.rows(name, names, **values)
        return row

    def script(self, text: str) -> None:
        """Run statements that return nothing and take no values, in one transaction."""
        with map_errors(), self._raw.transaction():
            self._raw.execute(text.encode())

    def copy_messages(self, table: TableName, rows: Sequence[tuple[str, bytes | None]]) -> None:
        """Append (headers, body) rows to a queue table by binary COPY, each under a new id.

        Raises `RefusedMessageError` where a row is at fault, `DestinationError` where the table is.
        """
        text = f"COPY {table} (id, headers, body) FROM STDIN (FORMAT BINARY)"
        with destination_errors(table), self._raw.cursor() as cursor:
            # A deferred constraint would refuse the whole batch at its COMMIT, in every attempt.
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            with cursor.copy(text.encode()) as copy:
                for chunk in copy_chunks(rows):
                    copy.write(chunk)
            if cursor.rowcount != len(rows):
                raise RefusedMessageError(
                    f"Queue table {table} took {cursor.rowcount} of {len(rows)} rows, and "
                    "raised no error",
                    advice="look for a trigger on it that drops rows",
                )

    def jdbc_address(self, answer_seconds: float) -> tuple[str, dict[str, str]]:
        """JDBC URL and connection properties of the server that this session is connected to.
        `answer_seconds` is the limit for one answer over JDBC.
        """
        info = self._raw.info
        if info.host.startswith("/"):
            raise ConfigError(
                f"The store's dsn names the Unix socket {info.host}, which JDBC cannot use",
                advice="give a host name or 127.0.0.1",
            )
        limits = replace(self.limits, answer_seconds=answer_seconds)
        properties = {
            "driver": "org.postgresql.Driver",
            "user": info.user,
            "password": info.password,
            "sessionInitStatement": settings_query(time_outs(limits)),
            **{name: value for name, value in _tls_settings(self._raw).items() if value},
        }
        host = f"[{info.host}]" if ":" in info.host else info.host
        database = quote(info.dbname, safe="")
        url = f"jdbc:postgresql://{host}:{info.port}/{database}?{urlencode(_jdbc_settings(limits))}"
        return url, {name: value for name, value in properties.items() if value}


def _jdbc_settings(limits: Limits) -> dict[str, str]:
    """Settings of the JDBC driver, time-outs in whole seconds. They go into the URL: Spark turns
    the names of properties into small letters, and the driver ignores such names.
    """
    connect = str(round(limits.connect_seconds))
    return {
        "ApplicationName": "duesweep plan",
        "connectTimeout": connect,
        "loginTimeout": connect,
        "cancelSignalTimeout": connect,
        "socketTimeout": str(ceil(limits.answer_seconds)),
        "tcpKeepAlive": "true",
    }


def _tls_settings(raw: psycopg.Connection[Any]) -> dict[str, str]:
    # From the session: psycopg's own info leaves out settings of the environment (PGSSLMODE ...).
    settings = {option.keyword.decode(): option.val for option in raw.pgconn.info}
    return {name: (settings.get(name) or b"").decode() for name in _JDBC_TLS}


def array_text(items: Iterable[str]) -> str:
    """`items` (keys or numbers) as the text of an array: much faster than to adapt each item."""
    return "{" + ",".join(items) + "}"


def literal(value: str) -> str:
    """`value` as an SQL literal, for the queries that Spark runs over JDBC."""
    return sql.Literal(value).as_string(None)


def _describe_statement(name: str, names: Names) -> str:
    """The named statement and its tables, for error messages."""
    text = statement("postgresql", name)
    named = [str(each) for key, each in names.items() if f"{{{key}}}" in text]
    # Other names are columns, or SQL.
    tables = [each for each in named if each.startswith('"') and '"."' in each]
    return f"{name} on {', '.join(tables)}" if tables else name


def _fill_names(name: str, names: Names) -> bytes:
    # psycopg reads every % as a placeholder, even in a quoted name.
    quoted = {key: str(each).replace("%", "%%") for key, each in names.items()}
    return statement("postgresql", name).format(**quoted).encode()
