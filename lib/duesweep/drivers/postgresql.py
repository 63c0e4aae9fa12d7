"""psycopg: connections, statements, COPY, and whose fault an error is."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo, TransactionStatus
from psycopg.rows import namedtuple_row

from duesweep.address import TableName
from duesweep.drivers.postgresql_copy import copy_chunks
from duesweep.errors import (
    ConfigError,
    DestinationError,
    NotAQueueError,
    QueueNotFoundError,
    RefusedMessageError,
    StoreError,
    storable,
)
from duesweep.sql import statement

CONNECT_TIMEOUT_SECONDS = 10
# Half-open connections are noticed after about this long, not after the kernel's two hours.
_KEEPALIVE = {
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """How long one session may wait for a lock, for a statement and between statements."""

    lock_ms: int
    statement_ms: int
    idle_in_transaction_ms: int


TASK_LIMITS = TimeLimits(lock_ms=2_000, statement_ms=60_000, idle_in_transaction_ms=120_000)
DRIVER_LIMITS = TimeLimits(lock_ms=30_000, statement_ms=600_000, idle_in_transaction_ms=0)


class Connection:
    """One session: in UTC, with time-outs on everything, each statement a file of SQL."""

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self._raw = raw

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction, or within one a savepoint; committed at the end of the block."""
        with mapped(), self._raw.transaction():
            yield

    def begin(self) -> None:
        """Begin a transaction that `commit` ends, unless one is under way."""
        if self._raw.info.transaction_status == TransactionStatus.IDLE:
            with mapped():
                self._raw.execute("BEGIN")

    def commit(self) -> None:
        """Commit what was begun."""
        with mapped():
            self._raw.execute("COMMIT")

    def execute(self, name: str, tables: dict[str, TableName], **values: object) -> int:
        """Run the named statement; how many rows it touched."""
        with mapped():
            return self._raw.execute(_with_tables(name, tables), values, binary=True).rowcount

    def rows(self, name: str, tables: dict[str, TableName], **values: object) -> list[Any]:
        """The rows that the named statement returns, as named tuples."""
        with mapped(), self._raw.cursor(row_factory=namedtuple_row, binary=True) as cursor:
            return cursor.execute(_with_tables(name, tables), values).fetchall()

    def row(self, name: str, tables: dict[str, TableName], **values: object) -> Any:
        """The only row that the named statement returns."""
        (row,) = self.rows(name, tables, **values)
        return row

    def script(self, text: str) -> None:
        """Run statements that return nothing and take no values, in one transaction."""
        with mapped(), self._raw.transaction():
            self._raw.execute(text.encode())

    def copy_messages(self, table: TableName, rows: Iterable[tuple[str, bytes | None]]) -> None:
        """Append (headers, body) rows to a queue table by binary COPY, each under a new id.

        Raises `RefusedMessageError` where a row is at fault, `DestinationError` (or another
        `MessageError`, where it is no queue table any more) where the table is.
        """
        text = f"COPY {table} (id, headers, body) FROM STDIN (FORMAT BINARY)"
        with _destination_errors(table), self._raw.cursor() as cursor:
            # A deferred constraint would refuse the whole batch at its COMMIT, every time.
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            with cursor.copy(text.encode()) as copy:
                for chunk in copy_chunks(rows):
                    copy.write(chunk)

    def jdbc_address(self) -> tuple[str, dict[str, str]]:
        """JDBC URL and connection properties of the server that this session is connected to."""
        info = self._raw.info
        if info.host.startswith("/"):
            raise ConfigError(
                f"The store's dsn names the Unix socket {info.host}, which JDBC cannot use; "
                "give a host name or 127.0.0.1"
            )
        parameters = info.get_parameters()
        properties = {
            "driver": "org.postgresql.Driver",
            "user": info.user,
            "password": info.password,
            "ApplicationName": "duesweep plan",
            **{ours: parameters[ours] for ours in _JDBC_TLS if ours in parameters},
        }
        host = f"[{info.host}]" if ":" in info.host else info.host
        database = quote(info.dbname, safe="")
        url = f"jdbc:postgresql://{host}:{info.port}/{database}"
        return url, {name: value for name, value in properties.items() if value}

    @property
    def database(self) -> str:
        """The database's name."""
        return self._raw.info.dbname

    @property
    def resolved_dsn(self) -> str:
        """The dsn with what libpq added from its own sources (service and password files), so
        that an executor elsewhere can connect with it.
        """
        info = self._raw.info
        given = {k: v for k, v in info.get_parameters().items() if k not in _KEEPALIVE}
        given.pop("fallback_application_name", None)
        return make_conninfo("", **given, password=info.password or None)


_JDBC_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey")


def connect(dsn: str, limits: TimeLimits) -> Connection:
    """Open a session whose time zone is UTC, whatever role, server or process say.

    Raises `ConfigError` for a dsn or credentials that are wrong, `StoreError` where the server
    cannot be reached.
    """
    with _connect_errors(dsn):
        raw = _open(dsn)
        raw.execute(
            "SELECT set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO', false),"
            " set_config('client_encoding', 'UTF8', false),"
            " set_config('default_transaction_isolation', 'read committed', false),"
            " set_config('lock_timeout', %s, false), set_config('statement_timeout', %s, false),"
            " set_config('idle_in_transaction_session_timeout', %s, false),"
            # A driver whose machine is gone must not keep its sweep's lock for the kernel's hours.
            " set_config('tcp_keepalives_idle', '15', false),"
            " set_config('tcp_keepalives_interval', '5', false),"
            " set_config('tcp_keepalives_count', '3', false)",
            [f"{limits.lock_ms}", f"{limits.statement_ms}", f"{limits.idle_in_transaction_ms}"],
        )
    return Connection(raw)


def database_of(dsn: str) -> str:
    """The name of the database that `dsn` means; `ConfigError` where it cannot be read."""
    with _connect_errors(dsn):
        defaults = {o.keyword.decode(): o.val for o in Conninfo.get_defaults() if o.val}
        given = conninfo_to_dict(dsn)
    name = given.get("dbname") or _text(defaults.get("dbname")) or given.get("user")
    return str(name or _text(defaults.get("user")))


def connect_as_server(dsn: str) -> Connection:
    """Open a session that asks for no time zone of its own, so that its zone is the server's."""
    with _connect_errors(dsn), _without_own_zone():
        return Connection(_open(dsn, options=" "))


def server_time_zone(dsn: str) -> str | None:
    """The server's default time zone, below the settings of any role or database.

    A physical replication session is the one kind to which no role's or database's settings
    apply. None where this role may not open one.
    """
    with _without_own_zone():
        try:
            with _open(dsn, options=" ", replication="true") as raw:
                result = raw.pgconn.exec_(b"SHOW TimeZone")
                value = result.get_value(0, 0) if result.ntuples == 1 else None
        except psycopg.Error:
            return None
    return value.decode() if value else None


def array_text(items: Iterable[str]) -> str:
    """`items` (keys or numbers) in an array's text form: much cheaper than one adapted each."""
    return "{" + ",".join(items) + "}"


def literal(value: str) -> str:
    """`value` as an SQL literal, for the queries that Spark runs over JDBC."""
    return sql.Literal(value).as_string(None)


@contextmanager
def mapped() -> Iterator[None]:
    """Psycopg's errors as `StoreError`s."""
    try:
        yield
    except psycopg.Error as error:
        raise StoreError(_sentence(error), transient=_is_passing(error)) from error


@contextmanager
def _destination_errors(table: TableName) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        text = f"Queue table {table}: {_sentence(error)}"
        state = error.sqlstate or ""
        if state == "42P01":
            raise QueueNotFoundError(text) from error
        if state in _SHAPE_STATES:
            raise NotAQueueError(text) from error
        if state in _QUEUE_STATES:
            raise DestinationError(f"{text}; {_QUEUE_STATES[state]}") from error
        if state[:2] in _MESSAGE_CLASSES:
            raise RefusedMessageError(text) from error
        raise StoreError(text, transient=_is_passing(error)) from error


@contextmanager
def _connect_errors(dsn: str) -> Iterator[None]:
    try:
        yield
    except psycopg.ProgrammingError as error:
        # Without libpq's words, which may quote the password.
        raise ConfigError(
            "The store's dsn cannot be read; write it as postgresql://user@host:5432/database, "
            "with "
            "% and other special characters percent-encoded, or as keyword=value pairs"
        ) from error
    except psycopg.OperationalError as error:
        if _is_refused_for_good(error):
            raise ConfigError(f"{_where(dsn)} refuses the session: {_sentence(error)}") from error
        text = f"No PostgreSQL server takes a session at {_where(dsn)}: {_sentence(error)}"
        raise StoreError(text, transient=True) from error


# https://www.postgresql.org/docs/current/errcodes-appendix.html
# Data exception, integrity violation, program limit (a value too large), raised by a trigger,
# check option of a view: the row's own fault.
_MESSAGE_CLASSES = {"22", "23", "44", "54", "P0"}
# Undefined column, datatype mismatch, wrong object type: it was a queue table a moment ago.
_SHAPE_STATES = {"42703", "42804", "42809"}
# These stop the whole queue, not one message: what to do about each.
_QUEUE_STATES = {
    "2200H": "its seq has used up its 32 bits: alter the column and its sequence to bigint",
    "55P03": "somebody holds a lock on it; look for ALTER, TRUNCATE or VACUUM FULL",
    "57014": "the statement took too long",
    "42501": "grant INSERT on it (and USAGE on its sequence and schema) to the sweeper's role",
    "25006": "it is read-only; connect to the primary server",
}
# Connection, rollback (deadlock, serialization), resources, lock not available, intervention.
_PASSING_CLASSES = {"08", "40", "53", "55", "57", "58"}

_PASSING_REFUSALS = (
    "starting up",
    "shutting down",
    "recovery mode",
    "not yet accepting connections",
    "too many clients",
    "too many connections",
    "remaining connection slots",
    "terminating connection",
)


def _is_passing(error: psycopg.Error) -> bool:
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state[:2] in _PASSING_CLASSES


def _is_refused_for_good(error: psycopg.OperationalError) -> bool:
    # libpq gives no SQLSTATE for a refused session; the server's own words begin with FATAL.
    text = str(error)
    return "FATAL:" in text and not any(passing in text for passing in _PASSING_REFUSALS)


def _sentence(error: psycopg.Error) -> str:
    primary = error.diag.message_primary
    text = primary if primary else " ".join(str(error).split()) or type(error).__name__
    return storable(text if not error.sqlstate else f"{text} ({error.sqlstate})")


def _text(value: bytes | None) -> str:
    return value.decode() if value else ""


def _where(dsn: str) -> str:
    parts = conninfo_to_dict(dsn)
    place = f"{parts.get('host', 'the local socket')}:{parts.get('port', 5432)}"
    return f"{place}/{parts.get('dbname', '')}"


def _open(dsn: str, **overrides: str) -> psycopg.Connection[Any]:
    # No prepared statements: a pooler in between keeps none of them, and the planner should see
    # each batch's own keys.
    return psycopg.connect(
        dsn,
        autocommit=True,
        prepare_threshold=None,
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        **{"application_name": "duesweep", **_KEEPALIVE, **overrides},  # type: ignore[arg-type]
    )


@contextmanager
def _without_own_zone() -> Iterator[None]:
    # libpq sends PGTZ with the start-up packet and offers no other way to leave it out.
    zone = os.environ.pop("PGTZ", None)
    try:
        yield
    finally:
        if zone is not None:
            os.environ["PGTZ"] = zone


def _with_tables(name: str, tables: dict[str, TableName]) -> bytes:
    # psycopg reads % as a placeholder wherever it stands, in a quoted name too.
    text = statement("postgresql", name)
    names = {key: str(table).replace("%", "%%") for key, table in tables.items()}
    return text.format(**names).encode()
