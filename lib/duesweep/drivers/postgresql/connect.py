"""Opens sessions, and reads what a dsn means."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import generators
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Limits
from duesweep.drivers.postgresql.bounded import BoundedConnection
from duesweep.drivers.postgresql.connection import PostgreSqlConnection
from duesweep.drivers.postgresql.errors import connect_errors
from duesweep.drivers.postgresql.settings import UTC_SETTINGS, settings_query, time_outs
from duesweep.drivers.postgresql.uuids import UuidArray, UuidArrayDumper

TASK_LIMITS = DEFAULT_TIMEOUTS.task
DRIVER_LIMITS = DEFAULT_TIMEOUTS.driver
# It warns of a rollback or a pipeline that fails, after an error that is reported anyway.
logging.getLogger("psycopg").setLevel(logging.ERROR)
# Half-open connections are noticed after about this long, not after the kernel's two hours.
_KEEPALIVE = {"keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3}


def connect(dsn: str, limits: Limits) -> PostgreSqlConnection:
    """Open a session in UTC, whatever the settings of role, server and process are.

    Raises `ConfigError` for a dsn or credentials that are wrong, `StoreError` where the server
    cannot be reached.
    """
    with connect_errors(dsn):
        raw = _open(dsn, limits)
        _set_up(raw, UTC_SETTINGS | time_outs(limits), limits)
    return PostgreSqlConnection(raw, limits)


def database_of(dsn: str) -> str:
    """The name of the database that `dsn` means; `ConfigError` where it cannot be read."""
    with connect_errors(dsn):
        defaults = {o.keyword.decode(): o.val for o in Conninfo.get_defaults() if o.val}
        given = conninfo_to_dict(dsn)
    name = given.get("dbname") or _text(defaults.get("dbname")) or given.get("user")
    return str(name or _text(defaults.get("user")))


def connect_as_server(dsn: str, limits: Limits) -> PostgreSqlConnection:
    """Open a session that sets no time zone, so that it has the server's."""
    with connect_errors(dsn), _hide_own_zone():
        raw = _open(dsn, limits, options=" ")
        _set_up(raw, time_outs(limits), limits)
    return PostgreSqlConnection(raw, limits)


def server_time_zone(dsn: str, limits: Limits) -> str | None:
    """The server's default time zone, without the settings of roles and databases.

    It takes a physical replication session: only to these no settings of a role or a database
    apply. None where this role may not open one.
    """
    with _hide_own_zone():
        try:
            with _open(dsn, limits, options=" ", replication="true") as raw:
                # Such a session speaks the simple protocol only.
                raw.pgconn.send_query(b"SHOW TimeZone")
                (result,) = raw.wait(generators.execute(raw.pgconn))
                value = result.get_value(0, 0) if result.ntuples == 1 else None
        except psycopg.Error:
            return None
    return value.decode() if value else None


def _text(value: bytes | None) -> str:
    return value.decode() if value else ""


def _open(dsn: str, limits: Limits, **overrides: str) -> BoundedConnection:
    hosts = str(conninfo_to_dict(dsn).get("host") or "").count(",") + 1
    # No prepared statements: a pooler may lose them, and the planner should see each batch's own
    # keys.
    raw = BoundedConnection.connect(
        dsn,
        autocommit=True,
        prepare_threshold=None,
        # libpq applies this to each host.
        connect_timeout=max(2, int(limits.connect_seconds / hosts)),
        **{
            # The server cuts it at 63 bytes.
            "application_name": f"duesweep, process {os.getpid()} on {socket.gethostname()}",
            "tcp_user_timeout": round(limits.answer_seconds * 1_000),
            **_KEEPALIVE,
            **overrides,
        },  # type: ignore[arg-type]
    )
    raw.answer_seconds = raw.ping_seconds = limits.connect_seconds
    raw.adapters.register_dumper(UuidArray, UuidArrayDumper)
    return raw


def _set_up(raw: BoundedConnection, settings: dict[str, str], limits: Limits) -> None:
    try:
        # One round trip. The first statement removes a time-out that could end the second one.
        raw.execute(f"SET statement_timeout = 0; {settings_query(settings)}".encode())
    except psycopg.Error:
        raw.close()
        raise
    raw.answer_seconds = limits.answer_seconds


@contextmanager
def _hide_own_zone() -> Iterator[None]:
    # libpq sends PGTZ with the start-up packet. There is no other way to keep it from that.
    zone = os.environ.pop("PGTZ", None)
    try:
        yield
    finally:
        if zone is not None:
            os.environ["PGTZ"] = zone
