"""Locks of a session on PostgreSQL."""

import hashlib

from duesweep.drivers.statements import Session


class PostgreSqlLocks:
    """See `Locks`: advisory locks of the session."""

    def __init__(self, statements: Session) -> None:
        self._statements = statements

    def try_lock(self, name: str) -> bool:
        """Whether this session now holds the lock; never waits."""
        return bool(self._statements.row("try_lock", lock_key=_lock_key(name)).locked)

    def unlock(self, name: str) -> None:
        """Release a lock that this session holds."""
        self._statements.row("unlock", lock_key=_lock_key(name))

    def holder(self, name: str) -> str | None:
        """The process and since when its session has been idle; a frozen process is idle, too."""
        rows = self._statements.rows("lock_holder", lock_key=_lock_key(name))
        if not rows or rows[0].idle_since is None:
            return None
        _, _, process = rows[0].application.partition("duesweep, process ")
        named = f"Process {process}" if process else "Another process"
        return f"{named}, whose session has been idle since {rows[0].idle_since:%F %T} UTC,"


def _lock_key(name: str) -> int:
    """The key of an advisory lock: 64 bits, so that others' keys are not met by chance."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
