"""The data of a store in memory, which its sessions share."""

import threading
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from duesweep.core.clock import SettableClock
from duesweep.core.pauses import Pause
from duesweep.errors import StoreError
from duesweep.stores.values import Horizon, SweepRun
from duesweep_testing.builders import DUE, DelayedRow
from duesweep_testing.journal import ChangeEntry, JournalEntry

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# An hour after the builders' messages were due.
_START_SECONDS = (DUE + timedelta(hours=1) - _EPOCH).total_seconds()
_LOCK_WAIT_SECONDS = 10.0


@dataclass(slots=True, eq=False)
class MemorySweep:
    """A sweep's counters, the session that counts now, and the sessions with an open batch."""

    is_open: bool = True
    exhausted: int = 0
    over_limit: int = 0
    stop_at: datetime | None = None
    counting: object | None = None
    in_flight: set[object] = field(default_factory=set)


class MemoryState:
    """Rows, locks, counters and sweeps. `clock` is the server's: seconds since 1970-01-01 UTC."""

    def __init__(self, rows: Iterable[DelayedRow] = (), clock: SettableClock | None = None) -> None:
        self.clock = clock or SettableClock(_START_SECONDS)
        self.rows = {row.key: row for row in rows}
        # Failures, and when the message is eligible again in microseconds since 1970-01-01 UTC.
        self.attempts: dict[str, tuple[int, int]] = {}
        # The last error of each message that has failed.
        self.errors: dict[str, str] = {}
        self.journal: dict[UUID, list[JournalEntry]] = {}
        self.sweeps: dict[UUID, MemorySweep] = {}
        # What operators' commands changed.
        self.changes: dict[UUID, list[ChangeEntry]] = {}
        # The session that holds the lock of a row, by the row's key.
        self.holders: dict[str, object] = {}
        self.pauses: dict[str, Pause] = {}
        # Until when each limit is reserved, by the clock's seconds.
        self.reserved: dict[str, float] = {}
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

    def open_command(self) -> SweepRun:
        """Open an operator's command."""
        run = self.open_sweep()
        self.changes[run.sweep_id] = []
        return run

    def close_sweep(self, run: SweepRun) -> None:
        """Close a sweep after its open batches have ended."""
        sweep = self.sweeps[run.sweep_id]
        with self.changed:
            self.wait_until(lambda: not sweep.in_flight)
            sweep.is_open = False

    def pauses_in_force(self) -> list[Pause]:
        """The pauses that have not ended, by their patterns."""
        known = sorted(self.pauses.values(), key=lambda one: one.pattern)
        return [one for one in known if one.until is None or one.until > self.now]

    def stop_sweep(self, sweep_id: UUID, after_seconds: float) -> None:
        """Let a sweep stop so many seconds from now, unless it stops earlier."""
        sweep = self.sweeps[sweep_id]
        stop_at = self.now + timedelta(seconds=after_seconds)
        sweep.stop_at = min(stop_at, sweep.stop_at or stop_at)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for other sessions, for a limited time. The caller holds `changed`."""
        if not self.changed.wait_for(condition, _LOCK_WAIT_SECONDS):
            raise StoreError("Another session has held a lock for too long", transient=True)
