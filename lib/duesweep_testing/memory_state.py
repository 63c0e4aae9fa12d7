"""The data of a store in memory, which its sessions share."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from duesweep.core.change import Command
from duesweep.core.errors import StoreError
from duesweep.core.message import Message
from duesweep.core.policy import Pause
from duesweep.core.world import SettableClock
from duesweep_testing.builders import DUE, ENDPOINT, DelayedRow
from duesweep_testing.journal import ChangeEntry, JournalEntry

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# An hour after the builders' messages were due.
_START_SECONDS = (DUE + timedelta(hours=1) - _EPOCH).total_seconds()
_LOCK_WAIT_SECONDS = 10.0


class MemoryCounter(NamedTuple):
    """The failures of a message, and the last reason. Times are microseconds since 1970-01-01
    UTC.
    """

    attempts: int
    next_attempt_at: int = 0
    first_failed_at: int = 0
    last_failed_at: int = 0
    message_id: str | None = None
    destination: str | None = None
    error_class: str = ""
    error_text: str = ""


@dataclass(slots=True, eq=False)
class MemorySweep:
    """A sweep or command. `owner` is the session by which it lives, `counting` the session that
    counts exhausted messages now, `in_flight` are sessions with an open batch.
    """

    sweep_id: UUID
    source: str
    started_at: datetime
    horizon: datetime
    owner: object | None
    engine: str | None = None
    command: Command | None = None
    planned: list[int] = field(default_factory=list)
    closed_at: datetime | None = None
    sealed_at: datetime | None = None
    abandoned: bool = False
    remaining: int = 0
    reason: str | None = None
    stop_at: datetime | None = None
    attempts_changed: bool = False
    exhausted: int = 0
    over_limit: int = 0
    # When exhausted messages had failed first, by their keys.
    first_failed_us: dict[str, int] = field(default_factory=dict)
    counting: object | None = None
    in_flight: set[object] = field(default_factory=set)


class MemoryState:
    """Rows, locks, counters and sweeps. `clock` is the server's: seconds since 1970-01-01 UTC."""

    source = "memory"

    def __init__(self, rows: Iterable[DelayedRow] = (), clock: SettableClock | None = None) -> None:
        self.own_queue = ENDPOINT
        self.clock = clock or SettableClock(_START_SECONDS)
        self.rows = {row.key: row for row in rows}
        self.attempts: dict[str, MemoryCounter] = {}
        self.journal: dict[UUID, list[JournalEntry]] = {}
        self.sweeps: dict[UUID, MemorySweep] = {}
        # The rows of each slice of each plan.
        self.plans: dict[str, list[list[DelayedRow]]] = {}
        # What operators' commands changed.
        self.changes: dict[UUID, list[ChangeEntry]] = {}
        # The session that holds the lock of a row, by the row's key.
        self.holders: dict[str, object] = {}
        # The session that settles.
        self.settler: object | None = None
        self.ledger_id: UUID | None = None
        self.pauses: dict[str, Pause] = {}
        # Until when each limit is reserved, by the clock's seconds.
        self.reserved: dict[str, float] = {}
        self.changed = threading.Condition()

    @property
    def now(self) -> datetime:
        return _EPOCH + timedelta(seconds=self.clock.seconds())

    def claim_key(self, message: Message) -> str:
        """The message's key: it is found by that."""
        return message.key

    def pauses_in_force(self) -> list[Pause]:
        known = sorted(self.pauses.values(), key=lambda one: one.pattern)
        return [one for one in known if one.until is None or one.until > self.now]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for other sessions, for a limited time. The caller holds `changed`."""
        if not self.changed.wait_for(condition, _LOCK_WAIT_SECONDS):
            raise StoreError("Another session has held a lock for too long", transient=True)
