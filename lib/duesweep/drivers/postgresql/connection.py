"""One session: named statements, COPY, and the JDBC address of the same database."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import ceil
from urllib.parse import quote, urlencode

from psycopg.pq import TransactionStatus

from duesweep.core.address import TableName
from duesweep.core.timeouts import Limits
from duesweep.drivers.postgresql.bounded import BoundedConnection
from duesweep.drivers.postgresql.copy import copy_chunks
from duesweep.drivers.postgresql.errors import destination_errors, map_errors
from duesweep.drivers.postgresql.settings import LARGE_STATEMENTS, settings_query, time_outs
from duesweep.drivers.postgresql.statements import PostgreSqlStatements
from duesweep.drivers.postgresql.tls import channel_binding, jdbc_tls, tls_settings
from duesweep.errors import ConfigError, RefusedMessageError


class PostgreSqlConnection(PostgreSqlStatements):
    """One session: in UTC, with time-outs on everything; `named` statements run on it."""

    def __init__(self, raw: BoundedConnection, limits: Limits) -> None:
        super().__init__(raw, {})
        self.limits = limits

    def __enter__(self) -> "PostgreSqlConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    @contextmanager
    def wait_longer(self, seconds: float) -> Iterator[None]:
        """A transaction for large statements, in which one answer may take `seconds`."""
        limits = replace(self.limits, answer_seconds=seconds)
        settings = time_outs(limits) | LARGE_STATEMENTS
        with self.transaction():
            with map_errors():
                self._raw.execute(settings_query(settings, in_transaction=True).encode())
            self._raw.answer_seconds = seconds
            try:
                yield
            finally:
                self._raw.answer_seconds = self.limits.answer_seconds

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
            with cursor.copy(text.encode()) as copy:
                for chunk in copy_chunks(rows):
                    copy.write(chunk)
            if cursor.rowcount != len(rows):
                raise RefusedMessageError(
                    f"Queue table {table} took {cursor.rowcount} of {len(rows)} rows, and "
                    "raised no error",
                    advice="look for a trigger on it that drops rows",
                )

    @property
    def tls(self) -> dict[str, str]:
        """What was asked for: see `tls_settings`."""
        return tls_settings(self._raw)

    @property
    def is_encrypted(self) -> bool:
        """Whether this session uses TLS."""
        return bool(self._raw.pgconn.ssl_in_use)

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
            "sessionInitStatement": settings_query(time_outs(limits) | LARGE_STATEMENTS),
            **jdbc_tls(self.tls),
        }
        host = f"[{info.host}]" if ":" in info.host else info.host
        database = quote(info.dbname, safe="")
        settings = _jdbc_settings(limits) | {"channelBinding": channel_binding(self._raw)}
        url = f"jdbc:postgresql://{host}:{info.port}/{database}?{urlencode(settings)}"
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


def array_text(items: Iterable[str]) -> str:
    """`items` (keys or numbers) as the text of an array: much faster than to adapt each item."""
    return "{" + ",".join(items) + "}"
