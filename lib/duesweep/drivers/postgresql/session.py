"""One session with PostgreSQL: how it is opened, its waits, its statements, COPY, and the JDBC
address of the same database.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from math import ceil
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
from psycopg import generators
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo, TransactionStatus
from psycopg.rows import namedtuple_row

from duesweep.core.address import TableName
from duesweep.core.errors import ConfigError, refuse_dropped
from duesweep.core.policy import SessionWaits
from duesweep.drivers.postgresql.dsn import for_libpq
from duesweep.drivers.postgresql.errors import (
    connect_errors,
    destination_errors,
    grant_of,
    map_errors,
)
from duesweep.drivers.postgresql.start import (
    LARGE_STATEMENTS,
    SETTINGS,
    SessionStart,
    literal,
    set_up,
    settings_query,
    time_outs,
)
from duesweep.drivers.postgresql.wire import (
    BoundedConnection,
    KeysDumper,
    Places,
    PlacesDumper,
    channel_binding,
    jdbc_tls,
    new_ids,
    tls_settings,
)
from duesweep.drivers.process import process_name
from duesweep.drivers.statements import (
    Keys,
    Named,
    Names,
    Session,
    describe_statement,
    statement,  # noqa: TID251 - a driver
)

# It warns of a rollback or a pipeline that fails, after an error that is reported anyway.
logging.getLogger("psycopg").setLevel(logging.ERROR)
# The rows of a page are worked at before the next ones are fetched.
_PAGES_IDLE_SECONDS = 600.0
# Half-open connections are noticed after about this long, not after the kernel's two hours.
_KEEPALIVE = {"keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3}


class PostgreSqlSession(Session):
    """See `Session`. It is in UTC. Outside of a transaction each statement commits by itself.

    Behind a pooler each statement is in a transaction, which makes the settings of a session for
    itself only: the pooler may lend the server's process to other programs in between.
    """

    def __init__(
        self, raw: BoundedConnection, waits: SessionWaits, names: Names, start: SessionStart
    ) -> None:
        self.waits = waits
        self.names = names
        self._raw = raw
        self.start = start

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    def rows(self, name: str, /, **values: object) -> list[Any]:
        with (
            self._sent(name),
            self._raw.cursor(row_factory=namedtuple_row, binary=True) as cursor,
        ):
            return cursor.execute(self._text(name), values).fetchall()

    def execute(self, name: str, /, **values: object) -> int:
        with self._sent(name):
            return self._raw.execute(self._text(name), values, binary=True).rowcount

    def query(self, name: str, /, **literals: object) -> str:
        texts = {
            key: value.astimezone(UTC).isoformat() if isinstance(value, datetime) else str(value)
            for key, value in literals.items()
        }
        quoted = {key: literal(text) for key, text in texts.items()}
        text = statement("postgresql", name)
        return text.format(**self.start.text_names, **self.names, **quoted)

    def script(self, text: str) -> None:
        """Run statements that return nothing and take no values, in one transaction."""
        with self.transaction():
            self._raw.execute(text.encode())

    def rows_of_each(self, *named: Named, what: str) -> list[list[Any]]:
        """There is a list for each statement, also for one that is no SELECT. After one that fails,
        none runs.
        """
        with self._sent(what), ExitStack() as stack:
            cursors = [
                stack.enter_context(self._raw.cursor(row_factory=namedtuple_row, binary=True))
                for _ in named
            ]
            with self._raw.pipeline():
                for cursor, (name, values, names) in zip(cursors, named, strict=True):
                    cursor.execute(self._text(name, names), values)
            return [cursor.fetchall() if cursor.description else [] for cursor in cursors]

    @contextmanager
    def pages(
        self, name: str, size: int, values: Mapping[str, object]
    ) -> Iterator[Iterator[list[Any]]]:
        """The rows of the named statement in pages of `size`, by a cursor of the server: it
        continues where the last page ended. Needs a transaction; within the block other statements
        can run.
        """
        with (
            self._sent(name),
            self._raw.cursor(f"duesweep_{name}", row_factory=namedtuple_row) as cursor,
        ):
            cursor.execute(self._text(name), values, binary=True)
            yield iter(lambda: cursor.fetchmany(size), [])

    def copy_messages(self, table: TableName, rows: Sequence[tuple[str, bytes | None]]) -> None:
        """Append (headers, body) rows to a queue table by binary COPY, each under a new id.

        Raises `RefusedMessageError` where a row is at fault, `DestinationError` where the table is.
        """
        text = f"COPY {table} (id, headers, body) FROM STDIN (FORMAT BINARY)"
        with destination_errors(table), self._raw.cursor() as cursor:
            with cursor.copy(text.encode()) as copy:
                copy.set_types(["uuid", "text", "bytea"])
                for new_id, row in zip(new_ids(), rows, strict=False):
                    copy.write_row((new_id, *row))
            refuse_dropped(f"Queue table {table}", cursor.rowcount, len(rows))

    def insert_messages(self, table: TableName, rows: Sequence[tuple[str, bytes | None]]) -> None:
        """Append rows as `copy_messages` does, to a table whose rules and policies apply."""
        values = {
            "ids": Keys(map(str, islice(new_ids(), len(rows)))),
            "headers": [headers for headers, _ in rows],
            "bodies": [body for _, body in rows],
        }
        text = self._text("insert_messages", {"queue": table})
        with destination_errors(table):
            count = self._raw.execute(text, values, binary=True).rowcount
            refuse_dropped(f"Queue table {table}", count, len(rows))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        needs_settings = self._needs_settings
        with map_errors(), self._raw.transaction():
            if needs_settings:
                self._set(SETTINGS | time_outs(self.waits))
            yield

    @property
    def _needs_settings(self) -> bool:
        """Whether the next statement, or the transaction that begins, has to make the settings of a
        session: the pooler may have lent another process.
        """
        is_idle = self._raw.info.transaction_status == TransactionStatus.IDLE
        return self.start.is_pooled and is_idle

    def _set(self, settings: Mapping[str, str]) -> None:
        self._raw.execute(settings_query(settings, in_transaction=True).encode())

    @contextmanager
    def wait_longer(self, seconds: float) -> Iterator[None]:
        """A transaction for large statements, in which one answer may take `seconds`."""
        idle_seconds = self.waits.idle_seconds and _PAGES_IDLE_SECONDS
        waits = replace(self.waits, answer_seconds=seconds, idle_seconds=idle_seconds)
        with self.transaction():
            with map_errors():
                self._set(time_outs(waits) | LARGE_STATEMENTS)
            self._raw.answer_seconds = seconds
            try:
                yield
            finally:
                self._raw.answer_seconds = self.waits.answer_seconds

    def zone_at_start(self) -> tuple[str, str]:
        """The time zone with which the session began, and where it came from."""
        _, [row], _ = self.rows_of_each(
            ("set_zone", {"zone": None}, {}),
            ("session_zone", {}, {}),
            # The setting would outlive a savepoint.
            ("set_zone", {"zone": "UTC"}, {}),
            what="session_zone",
        )
        return row.zone, row.source

    @property
    def has_options(self) -> bool:
        """Whether the dsn or the environment gives settings of the server."""
        return bool(self._raw.info.options)

    @property
    def tls(self) -> dict[str, str]:
        """The requested settings: see `tls_settings`."""
        return tls_settings(self._raw)

    @property
    def is_encrypted(self) -> bool:
        """Whether this session uses TLS."""
        return bool(self._raw.pgconn.ssl_in_use)

    def jdbc_address(self, answer_seconds: float, url: str | None) -> tuple[str, dict[str, str]]:
        info = self._raw.info
        if info.host.startswith("/"):
            raise ConfigError(
                f"The store's dsn names the Unix socket {info.host}, which JDBC cannot use",
                advice="give a host name or 127.0.0.1",
            )
        waits = replace(self.waits, answer_seconds=answer_seconds, idle_seconds=_PAGES_IDLE_SECONDS)
        properties = {
            "driver": "org.postgresql.Driver",
            "user": info.user,
            "password": info.password,
            # For the transaction in which Spark reads: a pooler may lend the process to others.
            "sessionInitStatement": settings_query(
                time_outs(waits) | LARGE_STATEMENTS, in_transaction=True
            ),
            **jdbc_tls(self.tls),
        }
        host = f"[{info.host}]" if ":" in info.host else info.host
        database = quote(info.dbname, safe="")
        settings = {
            **_jdbc_settings(waits),
            **self.start.jdbc_settings(),
            "channelBinding": channel_binding(self._raw),
        }
        url = f"jdbc:postgresql://{host}:{info.port}/{database}?{urlencode(settings)}"
        return url, {name: value for name, value in properties.items() if value}

    def _text(self, name: str, more: Names = MappingProxyType({})) -> bytes:
        # psycopg reads % as a placeholder wherever it stands, in a quoted name too.
        names = {**self.start.text_names, **self.names, **more}
        escaped = {key: str(each).replace("%", "%%") for key, each in names.items()}
        return statement("postgresql", name).format(**escaped).encode()

    @contextmanager
    def _sent(self, name: str) -> Iterator[None]:
        """In the block, the named statement runs, whose errors are mapped: in a transaction of its
        own if that has to make the settings.
        """
        own = self.transaction() if self._needs_settings else nullcontext()
        with (
            own,
            map_errors(
                lambda: describe_statement(name, statement("postgresql", name), self.names),
                lambda refusal: grant_of(
                    refusal, self._raw.info.user, statement("postgresql", name), self.names
                ),
            ),
        ):
            yield


def connect(dsn: str, waits: SessionWaits, **overrides: str) -> PostgreSqlSession:
    """Open a session in UTC, whatever the settings of role, server and process are; `overrides`
    come before the parameters in the dsn.

    Raises `ConfigError` for a dsn or credentials that are wrong, `StoreError` where the server
    cannot be reached.
    """
    with connect_errors(dsn):
        raw = _open(dsn, waits, **overrides)
        start = set_up(raw, waits)
        raw.answer_seconds = waits.answer_seconds
    return PostgreSqlSession(raw, waits, {}, start)


def server_time_zone(session: PostgreSqlSession, dsn: str) -> str | None:
    """The server's default time zone, without the settings of roles, of the dsn and of the
    environment. None where this role's sessions cannot know it.

    If its role has a zone of its own, it takes a physical replication session: only to these
    no settings of a role or a database apply.
    """
    zone, source = session.zone_at_start()
    # Poolers refuse any options.
    overrides = {"options": " "} if session.has_options else {}
    if source == "client":
        with _hide_own_zone(), connect(dsn, session.waits, **overrides) as other:
            zone, source = other.zone_at_start()
    if source not in {"client", "user", "database user"}:
        return zone
    with _hide_own_zone():
        try:
            with _open(dsn, session.waits, replication="true", **overrides) as raw:
                # Such a session speaks the simple protocol only.
                raw.pgconn.send_query(b"SHOW TimeZone")
                (result,) = raw.wait(generators.execute(raw.pgconn))
                value = result.get_value(0, 0) if result.ntuples == 1 else None
        except psycopg.Error:
            return None
    return value.decode() if value else None


def database_of(dsn: str) -> str:
    """The name of the database that `dsn` means; `ConfigError` if it cannot be read."""
    with connect_errors(dsn):
        given = conninfo_to_dict(for_libpq(dsn))
        if given.get("dbname"):
            return str(given["dbname"])
        with _service(given.get("service")):
            # These include the options that a service's file has.
            defaults = {o.keyword: o.val for o in Conninfo.get_defaults() if o.val}
    named = (defaults.get(b"dbname"), str(given.get("user", "")).encode(), defaults.get(b"user"))
    return next(filter(None, named), b"").decode()


@contextmanager
def _service(name: object) -> Iterator[None]:
    """The environment with this service of libpq, if it is one."""
    before = os.environ.get("PGSERVICE")
    if name:
        os.environ["PGSERVICE"] = str(name)
    try:
        yield
    finally:
        if before is not None:
            os.environ["PGSERVICE"] = before
        elif name:
            del os.environ["PGSERVICE"]


def text_of(name: str, names: Names) -> str:
    """The text of a statement that takes no values."""
    return statement("postgresql", name).format(**names)


def _open(dsn: str, waits: SessionWaits, **overrides: str) -> BoundedConnection:
    dsn = for_libpq(dsn)
    hosts = str(conninfo_to_dict(dsn).get("host") or "").count(",") + 1
    # No prepared statements: a pooler loses them, and the planner should see each batch's own keys.
    raw = BoundedConnection.connect(
        dsn,
        autocommit=True,
        prepare_threshold=None,
        # libpq applies this to each host.
        connect_timeout=max(2, int(waits.connect_seconds / hosts)),
        **{
            # The server cuts it at 63 bytes.
            "application_name": f"duesweep, process {process_name()}",
            "tcp_user_timeout": round(waits.answer_seconds * 1_000),
            **_KEEPALIVE,
            **overrides,
        },  # type: ignore[arg-type]
    )
    raw.answer_seconds = raw.ping_seconds = waits.connect_seconds
    raw.adapters.register_dumper(Keys, KeysDumper)
    raw.adapters.register_dumper(Places, PlacesDumper)
    return raw


@contextmanager
def _hide_own_zone() -> Iterator[None]:
    # libpq sends PGTZ with the start-up packet. There is no other way to keep it from that.
    zone = os.environ.pop("PGTZ", None)
    try:
        yield
    finally:
        if zone is not None:
            os.environ["PGTZ"] = zone


def _jdbc_settings(waits: SessionWaits) -> dict[str, str]:
    """Settings of the JDBC driver, time-outs in whole seconds. They go into the URL: Spark turns
    the names of properties into small letters, and the driver ignores such names.
    """
    connect = str(round(waits.connect_seconds))
    return {
        "ApplicationName": "duesweep plan",
        "connectTimeout": connect,
        "loginTimeout": connect,
        "cancelSignalTimeout": connect,
        "socketTimeout": str(ceil(waits.answer_seconds)),
        "tcpKeepAlive": "true",
    }
