"""Opening sessions."""

from math import ceil

import pyodbc

from duesweep.core.timeouts import Limits
from duesweep.drivers.sqlserver.connection import SqlServerConnection
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep.drivers.sqlserver.errors import connect_errors
from duesweep.drivers.sqlserver.library import driver_library
from duesweep.drivers.sqlserver.watch import SilenceWatch

# unixODBC's pool is the process's, and a forked worker would share its parent's connections.
pyodbc.pooling = False

# Half-open connections are noticed after about this long. No silent reconnecting: the new session
# would not hold the locks of the old one.
_KEEPALIVE = {"KeepAlive": "15", "KeepAliveInterval": "5", "ConnectRetryCount": "0"}


def connect(dsn: str, limits: Limits) -> SqlServerConnection:
    """Open a session at READ COMMITTED, with time-outs on everything.

    Raises `ConfigError` for a dsn or a login that is wrong, `StoreError` where the server cannot be
    reached.
    """
    parsed = OdbcDsn.parse(dsn)
    more = {"APP": "duesweep", **_KEEPALIVE}
    if not {"driver", "dsn", "filedsn"} & set(parsed.pairs):
        more["Driver"] = driver_library()
    watch = SilenceWatch(parsed.server, parsed.port, limits.answer_seconds)
    with connect_errors(parsed.server), watch.opening(limits.connect_seconds):
        # Longer than the watch waits, who can tell a silent server from none.
        login_seconds = ceil(limits.connect_seconds) + 1
        raw = pyodbc.connect(parsed.text(**more), autocommit=True, timeout=login_seconds)
        raw.timeout = max(1, int(limits.statement_seconds))
        cursor = raw.cursor()
        # One a statement, since a batch of SETs hides which of them was refused. An error ends its
        # statement and not the transaction, so that savepoints can be gone back to.
        for setting in (
            "XACT_ABORT OFF",
            "NOCOUNT OFF",
            "TRANSACTION ISOLATION LEVEL READ COMMITTED",
            f"LOCK_TIMEOUT {limits.lock_seconds * 1_000:.0f}",
            # Where somebody has to give way, it is us, and not the endpoints.
            "DEADLOCK_PRIORITY LOW",
        ):
            cursor.execute(f"SET {setting}")
        cursor.close()
    return SqlServerConnection(raw, parsed, watch, limits)
