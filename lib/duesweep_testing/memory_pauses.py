"""Pauses of a store in memory."""

from collections.abc import Sequence
from datetime import datetime

from duesweep.core.pauses import Pause
from duesweep_testing.memory_state import MemoryState


class MemoryPauses:
    """It `PausesDestinations`, in the store's dictionary."""

    def __init__(self, store: MemoryState) -> None:
        self._store = store

    def pause(self, pattern: str, until: datetime | None, given_by: str, reason: str) -> None:
        """Pause the destinations that fit a pattern."""
        found = Pause(pattern, self._store.now, until, given_by, reason)
        self._store.pauses[pattern] = found

    def resume(self, pattern: str) -> bool:
        """End a pause; False if there is none in force."""
        was_paused = any(one.pattern == pattern for one in self.pauses())
        self._store.pauses.pop(pattern, None)
        return was_paused

    def pauses(self) -> Sequence[Pause]:
        """The pauses in force."""
        return self._store.pauses_in_force()
