"""The stores that keep the contract, each with what a test needs to know of it."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Protocol

from endpoint import Endpoint

from duesweep import wiring
from duesweep.queues.base import Queue
from duesweep.stores.base import Store
from duesweep.stores.values import SweepRun
from duesweep.testing.builders import ENDPOINT, DelayedRow
from duesweep.testing.journal import BatchEntry, ExhaustedEntry, JournalEntry, SliceEntry
from duesweep.testing.memory import MemoryStore
from duesweep.testing.memory_queue import MemoryQueue

# By the time zone of a database and a schema in it.
OpenEndpoint = Callable[[str, str], AbstractContextManager[Endpoint]]


class StoreUnderTest(Protocol):
    """A store and a queue `Billing` beside it, seen from outside of any session."""

    @property
    def store(self) -> Store:
        """The store."""
        ...

    @property
    def queue(self) -> Queue:
        """The queues beside it."""
        ...

    @property
    def own_queue(self) -> str:
        """The endpoint's name."""
        ...

    def now(self) -> datetime:
        """The moment before which a Due is past, as it is stored."""
        ...

    def load(self, rows: Iterable[DelayedRow]) -> None:
        """Store these rows."""
        ...

    def waiting(self) -> set[str]:
        """The keys in the store."""
        ...

    def reschedule(self, key: str, due: datetime) -> None:
        """Give a row another Due."""
        ...

    def open_sweep(self) -> SweepRun:
        """Open a sweep of what is due now."""
        ...

    def close_sweep(self, run: SweepRun) -> None:
        """Close it, as one that takes its driver for dead would."""
        ...

    def attempts(self) -> dict[str, int]:
        """The retry counters."""
        ...

    def ripen(self) -> None:
        """Let every back-off be over."""
        ...

    def journal(self, run: SweepRun) -> list[JournalEntry]:
        """What the sweep's tasks journalled, in the order of their transactions."""
        ...

    def counters(self, run: SweepRun) -> tuple[int, int]:
        """How many messages the sweep exhausted, and how many its limit held back."""
        ...

    def delivered(self) -> list[str]:
        """The headers of what lies in queue `Billing`."""
        ...


@dataclass(slots=True)
class MemoryUnderTest:
    """The store in memory."""

    store: MemoryStore
    queue: MemoryQueue
    own_queue: str = ENDPOINT

    def now(self) -> datetime:
        return self.store.now

    def load(self, rows: Iterable[DelayedRow]) -> None:
        self.store.rows.update({row.key: row for row in rows})

    def waiting(self) -> set[str]:
        return set(self.store.rows)

    def reschedule(self, key: str, due: datetime) -> None:
        row = self.store.rows[key]
        self.store.rows[key] = DelayedRow(key, row.headers, row.body, due)

    def open_sweep(self) -> SweepRun:
        return self.store.open_sweep()

    def close_sweep(self, run: SweepRun) -> None:
        self.store.close_sweep(run)

    def attempts(self) -> dict[str, int]:
        return {key: count for key, (count, _) in self.store.attempts.items()}

    def ripen(self) -> None:
        self.store.attempts = {key: (n, 0) for key, (n, _) in self.store.attempts.items()}

    def journal(self, run: SweepRun) -> list[JournalEntry]:
        return self.store.journal[run.sweep_id]

    def counters(self, run: SweepRun) -> tuple[int, int]:
        sweep = self.store.sweeps[run.sweep_id]
        return sweep.exhausted, sweep.held_back

    def delivered(self) -> list[str]:
        return [letter.headers for letter in self.queue.letters["Billing"]]


class PostgreSqlUnderTest:
    """The store of `endpoint`, whose tables are there."""

    def __init__(self, endpoint: Endpoint) -> None:
        parts = wiring.parts(endpoint.config())
        self.endpoint = endpoint
        self.store = parts.store
        self.queue = parts.queue
        self.own_queue = endpoint.name

    def now(self) -> datetime:
        return self.endpoint.due_in(0)

    def load(self, rows: Iterable[DelayedRow]) -> None:
        self.endpoint.load(rows)

    def waiting(self) -> set[str]:
        return set(self.endpoint.waiting())

    def reschedule(self, key: str, due: datetime) -> None:
        self.endpoint.execute(
            f"UPDATE {self.endpoint.delayed} SET due = $1 WHERE id = $2", due, key
        )

    def open_sweep(self) -> SweepRun:
        with self.store.open_driver() as driver:
            return driver.open_sweep(driver.horizon())

    def close_sweep(self, run: SweepRun) -> None:
        with self.store.open_driver() as driver:
            driver.close_sweep(run.sweep_id, abandoned=True, remaining=0)

    def attempts(self) -> dict[str, int]:
        return {key: row.attempts for key, row in self.endpoint.attempts().items()}

    def ripen(self) -> None:
        self.endpoint.ripen()

    def journal(self, run: SweepRun) -> list[JournalEntry]:
        rows = self.endpoint.fetch(
            "SELECT *, (extract(epoch FROM due) * 1000000)::bigint AS due_us,"
            " (extract(epoch FROM dispatched_at) * 1000000)::bigint AS dispatched_us"
            f" FROM {self.endpoint.own_table('journal')} WHERE sweep_id = $1 ORDER BY id",
            run.sweep_id,
        )
        return [_entry(row) for row in rows]

    def counters(self, run: SweepRun) -> tuple[int, int]:
        sweeps = self.endpoint.own_table("sweeps")
        text = f"SELECT exhausted, held_back FROM {sweeps} WHERE sweep_id = $1"
        (row,) = self.endpoint.fetch(text, run.sweep_id)
        return row.exhausted, row.held_back

    def delivered(self) -> list[str]:
        return [row.headers for row in self.endpoint.queue_rows("Billing")]


def _entry(row: Any) -> JournalEntry:
    if row.kind == "slice":
        return SliceEntry(row.slice, row.planned, row.reason)
    values = row._asdict() | {"slice_number": row.slice}
    if row.kind == "batch":
        values["lateness_ms"] = tuple(row.lateness_ms)
        return BatchEntry(**_of(BatchEntry, values))
    values["message_key"] = str(row.message_key)
    return ExhaustedEntry(**_of(ExhaustedEntry, values))


def _of(entry: type, values: dict[str, Any]) -> dict[str, Any]:
    return {field.name: values[field.name] for field in fields(entry)}
