"""Opening sessions, and finding out what a dsn means."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from duesweep.drivers.postgresql.connection import Connection
from duesweep.drivers.postgresql.errors import connect_errors

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


def connect(dsn: str, limits: TimeLimits) -> Connection:
    """Open a session whose time zone is UTC, whatever role, server or process say.

    Raises `ConfigError` for a dsn or credentials that are wrong, `StoreError` where the server
    cannot be reached.
    """
    with connect_errors(dsn):
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
        # These would end a driver's session that waits for its tasks. Not every version knows them.
        raw.execute(
            "SELECT set_config(name, '0', false) FROM pg_settings"
            " WHERE name IN ('idle_session_timeout', 'transaction_timeout')"
        )
    return Connection(raw)


def database_of(dsn: str) -> str:
    """The name of the database that `dsn` means; `ConfigError` where it cannot be read."""
    with connect_errors(dsn):
        defaults = {o.keyword.decode(): o.val for o in Conninfo.get_defaults() if o.val}
        given = conninfo_to_dict(dsn)
    name = given.get("dbname") or _text(defaults.get("dbname")) or given.get("user")
    return str(name or _text(defaults.get("user")))


def connect_as_server(dsn: str) -> Connection:
    """Open a session that asks for no time zone of its own, so that its zone is the server's."""
    with connect_errors(dsn), _without_own_zone():
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


def _text(value: bytes | None) -> str:
    return value.decode() if value else ""


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
