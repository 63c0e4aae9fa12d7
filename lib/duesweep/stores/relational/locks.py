"""Locks of a session that have a name."""

import hashlib
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from duesweep.drivers.statements import Session


class Locks(Protocol):
    """They are released when the session ends."""

    def try_lock(self, name: str) -> bool:
        """Whether this session now holds the lock; never waits."""
        ...

    def unlock(self, name: str) -> None:
        """Release a lock that this session holds."""
        ...

    def holder(self, name: str) -> str | None:
        """Who holds the lock, as a sentence's beginning; None: the server does not tell."""
        ...


@dataclass(frozen=True, slots=True)
class LockingSession:
    """A session's statements and its locks."""

    statements: Session
    locks: Locks


def sweep_lock(sweep_id: UUID) -> str:
    """The lock that a sweep's driver holds while it lives."""
    return f"duesweep/sweep/{sweep_id}"


def settle_lock(source: str) -> str:
    """The lock of a source's settler. Hashed, because the name of a lock has to be short."""
    return f"duesweep/settle/{_hashed(source)}"


def undo_lock(source: str) -> str:
    """The lock of the one command of a source that acts on rows of the ledger."""
    return f"duesweep/undo/{_hashed(source)}"


def _hashed(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()
