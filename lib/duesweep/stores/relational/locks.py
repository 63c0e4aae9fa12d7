"""Locks of a session that have a name."""

from dataclasses import dataclass
from typing import Protocol

from duesweep.drivers.statements import Statements


class Locks(Protocol):
    """They are released when the session ends."""

    def try_lock(self, name: str) -> bool:
        """Whether this session now holds the lock; never waits."""
        ...

    def wait_for_lock(self, name: str, seconds: float) -> bool:
        """Whether this session now holds the lock, after waiting for it at most so long."""
        ...

    def unlock(self, name: str) -> None:
        """Release a lock that this session holds."""
        ...


@dataclass(frozen=True, slots=True)
class LockingSession:
    """A session's statements and its locks."""

    statements: Statements
    locks: Locks
