"""Locks of a session on PostgreSQL."""

import hashlib
import time

from duesweep.drivers.statements import Statements

_POLL_SECONDS = 0.2


class PostgreSqlLocks:
    """See `Locks`: advisory locks of the session."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    def try_lock(self, name: str) -> bool:
        """Whether this session now holds the lock; never waits."""
        return bool(self._statements.row("try_lock", lock_key=_lock_key(name)).locked)

    def wait_for_lock(self, name: str, seconds: float) -> bool:
        """Whether this session now holds the lock, after waiting for it at most so long. It asks
        again and again, because a waiting statement would hold a snapshot meanwhile.
        """
        deadline = time.monotonic() + seconds
        while not self.try_lock(name):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def unlock(self, name: str) -> None:
        """Release a lock that this session holds."""
        self._statements.row("unlock", lock_key=_lock_key(name))


def _lock_key(name: str) -> int:
    """The key of an advisory lock: 64 bits, so that others' keys are not met by chance."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
