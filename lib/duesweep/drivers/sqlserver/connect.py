"""Opening sessions."""

from dataclasses import dataclass

import pyodbc

from duesweep.drivers.sqlserver.connection import Connection
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep.drivers.sqlserver.errors import connect_errors
from duesweep.drivers.sqlserver.library import driver_library

# unixODBC's pool is the process's, and a forked worker would share its parent's connections.
pyodbc.pooling = False

CONNECT_TIMEOUT_SECONDS = 10
# Half-open connections are noticed after about this long. No silent reconnecting: the new session
# would not hold the locks of the old one.
_KEEPALIVE = {"KeepAlive": "15", "KeepAliveInterval": "5", "ConnectRetryCount": "0"}


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """How long one session may wait for a lock and for a statement."""

    lock_ms: int
    statement_ms: int


TASK_LIMITS = TimeLimits(lock_ms=2_000, statement_ms=60_000)
DRIVER_LIMITS = TimeLimits(lock_ms=30_000, statement_ms=600_000)


def connect(dsn: str, limits: TimeLimits) -> Connection:
    """Open a session at READ COMMITTED, with time-outs on everything.

    Raises `ConfigError` for a dsn or a login that is wrong, `StoreError` where the server cannot be
    reached.
    """
    parsed = OdbcDsn.parse(dsn)
    more = {"APP": "duesweep", **_KEEPALIVE}
    if not {"driver", "dsn", "filedsn"} & set(parsed.pairs):
        more["Driver"] = driver_library()
    with connect_errors(parsed.place):
        raw = pyodbc.connect(parsed.text(**more), autocommit=True, timeout=CONNECT_TIMEOUT_SECONDS)
        raw.timeout = -(-limits.statement_ms // 1_000)
        cursor = raw.cursor()
        # One a statement, since a batch of SETs hides which of them was refused. An error ends its
        # statement and not the transaction, so that savepoints can be gone back to.
        for setting in (
            "XACT_ABORT OFF",
            "NOCOUNT OFF",
            "TRANSACTION ISOLATION LEVEL READ COMMITTED",
            f"LOCK_TIMEOUT {limits.lock_ms}",
            # Where somebody has to give way, it is us, and not the endpoints.
            "DEADLOCK_PRIORITY LOW",
        ):
            cursor.execute(f"SET {setting}")
        cursor.close()
    return Connection(raw, parsed)
