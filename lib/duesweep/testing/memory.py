"""A store in memory, which keeps the contract of the real ones.

Changes are noted during a transaction and made when it commits; row locks are held until then.
Several threads may have sessions on one store.
"""

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from duesweep.core.clock import SettableClock
from duesweep.errors import StoreError
from duesweep.stores.base import DriverSession
from duesweep.stores.modes import refuse_distributed
from duesweep.stores.values import Horizon, SweepRun, TransactionMode
from duesweep.testing.builders import DUE, ENDPOINT, DelayedRow
from duesweep.testing.journal import JournalEntry
from duesweep.testing.memory_sessions import MemoryMessageSession, MemoryTaskSession

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# An hour after the builders' messages came due.
_START_SECONDS = (DUE + timedelta(hours=1) - _EPOCH).total_seconds()
_LOCK_WAIT_SECONDS = 10.0


@dataclass(slots=True, eq=False)
class MemorySweep:
    """A sweep's counters, the session that counts now, and those with a batch in flight."""

    is_open: bool = True
    exhausted: int = 0
    over_limit: int = 0
    counting: "MemoryTaskSession | None" = None
    in_flight: "set[MemoryTaskSession]" = field(default_factory=set)


class MemoryStore:
    """`clock` is its server's: seconds since 1970-01-01 UTC."""

    source = "memory"
    own_queue = ENDPOINT

    def __init__(self, rows: Iterable[DelayedRow] = (), clock: SettableClock | None = None) -> None:
        self.clock = clock or SettableClock(_START_SECONDS)
        self.rows = {row.key: row for row in rows}
        # Failures, and when the message is eligible again in microseconds since 1970-01-01 UTC.
        self.attempts: dict[str, tuple[int, int]] = {}
        self.journal: dict[UUID, list[JournalEntry]] = {}
        self.sweeps: dict[UUID, MemorySweep] = {}
        self.holders: dict[str, MemoryTaskSession] = {}
        self.changed = threading.Condition()

    @property
    def now(self) -> datetime:
        """The server's time."""
        return _EPOCH + timedelta(seconds=self.clock.seconds())

    def open_sweep(self) -> SweepRun:
        """Open a sweep of what is due now."""
        run = SweepRun(uuid.uuid4(), Horizon(self.now, self.now))
        self.sweeps[run.sweep_id] = MemorySweep()
        self.journal[run.sweep_id] = []
        return run

    def close_sweep(self, run: SweepRun) -> None:
        """Close it once its batches in flight have ended."""
        sweep = self.sweeps[run.sweep_id]
        with self.changed:
            self.wait_until(lambda: not sweep.in_flight)
            sweep.is_open = False

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait a bounded time for what other sessions do; `changed` is held."""
        if not self.changed.wait_for(condition, _LOCK_WAIT_SECONDS):
            raise StoreError("Another session has held a lock for too long", transient=True)

    def set_up_infrastructure(self) -> None:
        """Nothing to do."""

    def initialise(self, endpoint: str, mode: TransactionMode) -> None:
        """Be the store of `endpoint`; a transaction is this store's only."""
        refuse_distributed(self.source, mode)
        self.own_queue = endpoint

    @contextmanager
    def open_task(self) -> Iterator["MemoryTaskSession"]:
        """A session for one slice."""
        yield MemoryTaskSession(self)

    @contextmanager
    def open_messages(self) -> Iterator["MemoryMessageSession"]:
        """A session for one message at a time."""
        yield MemoryMessageSession(self)

    def open_driver(self) -> DriverSession:
        """There is none: a plan is Spark's, and Spark reads no memory."""
        raise StoreError(
            "A store in memory has no driver session: Spark cannot read it", transient=False
        )
