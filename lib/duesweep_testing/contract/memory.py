"""The store and the queues in memory under test: an example for authors."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from duesweep.core.errors import DestinationError, DuesweepError, RefusedMessageError
from duesweep.core.message import Message
from duesweep.stores.sweeps import SweepRun
from duesweep_testing.builders import ENDPOINT, DelayedRow
from duesweep_testing.contract.subjects import REFUSED_BODY, Abilities, ArrivedMessages, JsonHeaders
from duesweep_testing.journal import ChangeEntry, JournalEntry
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_queue import MemoryQueue


@dataclass(slots=True)
class MemoryUnderTest(JsonHeaders):
    """The store in memory."""

    abilities = Abilities()

    store: MemoryStore = field(default_factory=MemoryStore)
    queue: MemoryQueue = field(default_factory=lambda: MemoryQueue("Billing"))
    own_queue: str = ENDPOINT

    def now(self) -> datetime:
        return self.store.now

    def server_time(self) -> datetime:
        return self.store.now

    def load(self, rows: Iterable[DelayedRow]) -> list[DelayedRow]:
        """Rows keep their keys."""
        stored = list(rows)
        self.store.rows.update({row.key: row for row in stored})
        return stored

    def claim_keys(self, rows: Iterable[DelayedRow]) -> list[str]:
        return [row.key for row in rows]

    def waiting(self) -> set[str]:
        return set(self.store.rows)

    def reschedule(self, key: str, due: datetime) -> None:
        self.store.rows[key] = replace(self.store.rows[key], due=due)

    def changes(self, run: SweepRun) -> list[ChangeEntry]:
        """The entries as they are."""
        return self.store.changes[run.sweep_id]

    def attempts(self) -> dict[str, int]:
        return {key: counter.attempts for key, counter in self.store.attempts.items()}

    def end_back_off(self) -> None:
        counters = self.store.attempts.items()
        self.store.attempts = {key: one._replace(next_attempt_at=0) for key, one in counters}

    def journal(self, run: SweepRun) -> list[JournalEntry]:
        """The entries as they are."""
        return self.store.journal[run.sweep_id]

    def counters(self, run: SweepRun) -> tuple[int, int]:
        sweep = self.store.sweeps[run.sweep_id]
        return sweep.exhausted, sweep.over_limit

    def delivered(self) -> list[str]:
        return [one.headers for one in self.queue.arrived["Billing"]]


@dataclass(slots=True)
class MemoryQueueUnderTest:
    """Queues in memory."""

    has_null_bodies = True

    has_own_transaction: bool
    queue: MemoryQueue = field(init=False)
    store: MemoryStore = field(default_factory=MemoryStore)

    def __post_init__(self) -> None:
        self.queue = MemoryQueue("Billing", own_transaction=self.has_own_transaction)

    def create(self, address: str) -> None:
        self.queue.arrived[address] = []

    def drop(self, address: str) -> None:
        del self.queue.arrived[address]

    def arrived(self, address: str) -> ArrivedMessages:
        return [(one.headers, one.body) for one in self.queue.arrived[address]]

    def refuse(self, address: str) -> None:
        self.queue.trouble[address] = _refuse

    @contextmanager
    def locked(self, address: str) -> Iterator[None]:
        self.queue.trouble[address] = lambda _: DestinationError(f"{address} is locked")
        yield
        del self.queue.trouble[address]


def _refuse(message: Message) -> DuesweepError | None:
    return RefusedMessageError("unwanted") if message.body == REFUSED_BODY else None
