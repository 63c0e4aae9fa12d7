"""Opens sessions."""

from math import ceil

from duesweep.core.timeouts import Limits
from duesweep.drivers.sqlserver.connection import SqlServerConnection
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep.drivers.sqlserver.errors import connect_errors
from duesweep.drivers.sqlserver.library import driver_library, odbc
from duesweep.drivers.sqlserver.port import refuse_closed_port
from duesweep.drivers.sqlserver.watch import SilenceWatch

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
    pyodbc = odbc()
    refuse_closed_port(parsed)
    watch = SilenceWatch(parsed.server, parsed.port, limits.answer_seconds)
    has_password = not {"pwd", "trusted_connection", "authentication"}.isdisjoint(parsed.pairs)
    with (
        connect_errors(parsed.server, has_password=has_password),
        watch.watch_opening(limits.connect_seconds),
    ):
        # Longer than the watch waits: it can tell a silent server from a missing one.
        login_seconds = ceil(limits.connect_seconds) + 1
        raw = pyodbc.connect(parsed.text(**more), autocommit=True, timeout=login_seconds)
        raw.timeout = max(1, int(limits.statement_seconds))
        cursor = raw.cursor()
        # One statement for each setting: in one batch the error would not say which was refused.
        # With XACT_ABORT OFF an error ends its statement only, so savepoints can be rolled back to.
        for setting in (
            "XACT_ABORT OFF",
            "NOCOUNT OFF",
            "TRANSACTION ISOLATION LEVEL READ COMMITTED",
            f"LOCK_TIMEOUT {limits.lock_seconds * 1_000:.0f}",
            # In a deadlock, the sweep is the victim and not an endpoint.
            "DEADLOCK_PRIORITY LOW",
        ):
            cursor.execute(f"SET {setting}")
        cursor.close()
    return SqlServerConnection(raw, parsed, watch, limits)
