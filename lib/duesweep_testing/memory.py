"""A store in memory, with the contract of real ones.

Changes are noted during a transaction and made when it commits; row locks are held until then.
Several threads may have sessions on one store.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from duesweep.stores.base import Operators, Store, TransactionMode, refuse_distributed
from duesweep_testing.memory_driver import MemoryDriverSession
from duesweep_testing.memory_sessions import MemoryChangeSession, MemoryTaskSession
from duesweep_testing.memory_state import MemoryState


class MemoryStore(MemoryState, Store):
    """The store. Sessions share its state."""

    def initialise(self, endpoint: str, mode: TransactionMode) -> None:
        """Be the store of `endpoint`. A transaction covers this store only."""
        refuse_distributed(self.source, mode)
        self.own_queue = endpoint

    @contextmanager
    def open_task(self) -> Iterator[MemoryTaskSession]:
        yield MemoryTaskSession(self)

    def open_driver(self) -> MemoryDriverSession:
        return MemoryDriverSession(self)

    @contextmanager
    def open_changes(self) -> Iterator[MemoryChangeSession]:
        yield MemoryChangeSession(self)

    def operators(self) -> Operators:
        return self
