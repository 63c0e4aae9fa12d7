"""Locks of a session on SQL Server."""

import time

from duesweep.drivers.sqlserver import SqlServerConnection


class SqlServerLocks:
    """See `Locks`: application locks of the session."""

    def __init__(self, connection: SqlServerConnection) -> None:
        self._connection = connection

    def try_lock(self, name: str) -> bool:
        """Whether this session now holds the lock; never waits."""
        return self.wait_for_lock(name, 0)

    def wait_for_lock(self, name: str, seconds: float) -> bool:
        """Whether this session now holds the lock, after waiting for it at most so long. It waits
        in pieces, because a server that waited longer than a statement may take would pass for a
        silent one.
        """
        deadline = time.monotonic() + seconds
        longest = self._connection.limits.statement_seconds / 2
        while True:
            left = max(0.0, deadline - time.monotonic())
            wait_ms = int(min(left, longest) * 1_000)
            if self._connection.row("try_lock", lock=name, wait_ms=wait_ms).locked:
                return True
            if left <= longest:
                return False

    def unlock(self, name: str) -> None:
        """Release a lock that this session holds."""
        self._connection.execute("unlock", lock=name)
