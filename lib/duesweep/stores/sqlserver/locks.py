"""Locks of a session on SQL Server."""

from duesweep.drivers.sqlserver.session import SqlServerSession


class SqlServerLocks:
    """See `Locks`: application locks of the session."""

    def __init__(self, connection: SqlServerSession) -> None:
        self._connection = connection

    def try_lock(self, name: str) -> bool:
        """Whether this session now holds the lock; never waits."""
        return bool(self._connection.row("try_lock", lock=name).locked)

    def unlock(self, name: str) -> None:
        """Release a lock that this session holds."""
        self._connection.execute("unlock", lock=name)

    def holder(self, name: str) -> str | None:  # noqa: ARG002 - the contract's
        """None: only a role with VIEW SERVER STATE may see other sessions."""
        return None
