"""A store in memory, which keeps the contract of the real ones.

Changes are noted during a transaction and made when it commits; row locks are held until then.
Several threads may have sessions on one store.
"""

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

from duesweep.clock import SettableClock
from duesweep.errors import StoreError, SweepClosedError
from duesweep.message import Message
from duesweep.outcome import Outcomes
from duesweep.stores.base import DriverSession
from duesweep.stores.modes import refuse_distributed
from duesweep.stores.values import Claim, Horizon, SweepRun, TransactionMode
from duesweep.testing.builders import DUE, ENDPOINT, DelayedRow, message
from duesweep.testing.journal import JournalEntry, SliceEntry, batch_entry, exhausted_entry
from duesweep.tombstone import BatchClock, micros

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# An hour after the builders' messages came due.
_START_SECONDS = (DUE + timedelta(hours=1) - _EPOCH).total_seconds()
_LOCK_WAIT_SECONDS = 10.0


@dataclass(slots=True, eq=False)
class MemorySweep:
    """A sweep's counters, the session that counts now, and those with a batch in flight."""

    is_open: bool = True
    exhausted: int = 0
    held_back: int = 0
    counting: "MemoryTaskSession | None" = None
    in_flight: "set[MemoryTaskSession]" = field(default_factory=set)


class MemoryStore:
    """`clock` is its server's: seconds since 1970-01-01 UTC."""

    source = "memory"
    own_queue = ENDPOINT

    def __init__(self, rows: Iterable[DelayedRow] = (), clock: SettableClock | None = None) -> None:
        self.clock = clock or SettableClock(_START_SECONDS)
        self.rows = {row.key: row for row in rows}
        # Failures, and when the message is ripe again in microseconds since 1970-01-01 UTC.
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

    def open_driver(self) -> DriverSession:
        """There is none: a plan is Spark's, and Spark reads no memory."""
        raise StoreError(
            "A store in memory has no driver session: Spark cannot read it", transient=False
        )


class MemoryTaskSession:
    """The batch contract, over dictionaries."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._depth = 0
        self._changes: list[Callable[[], object]] = []
        self._locked: list[str] = []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction; nested, a savepoint, back to which a rollback frees locks as well."""
        changes, locked = len(self._changes), len(self._locked)
        self._depth += 1
        try:
            yield
        except BaseException:
            del self._changes[changes:]
            self._release(locked)
            raise
        finally:
            self._depth -= 1
            if not self._depth:
                self._end()

    def enlist(self, change: Callable[[], object]) -> None:
        """Have `change` made when the transaction commits."""
        assert self._depth, "outside a transaction"
        self._changes.append(change)

    def claim(self, run: SweepRun, tickets: Sequence[str]) -> Claim:
        """Lock what is due and ripe among these keys."""
        store, now_us = self._store, micros(self._store.now)
        with store.changed:
            self._fence(run)
            rows = [store.rows[key] for key in dict.fromkeys(tickets) if key in store.rows]
            free = [row for row in rows if store.holders.get(row.key, self) is self]
            counted = [(row, *store.attempts.get(row.key, (0, now_us))) for row in free]
            messages = [
                message(row, attempts)
                for row, attempts, ripe_us in counted
                if row.is_due(run.horizon.before) and ripe_us <= now_us
            ]
            self._locked += [m.key for m in messages]
            store.holders.update(dict.fromkeys(self._locked, self))
        return Claim(tuple(sorted(messages, key=lambda m: m.due_us or 0)), now_us)

    def ticket(self, message: Message) -> str:
        """Its key."""
        return message.key

    def pass_over(self, messages: Sequence[Message]) -> None:
        """Nothing to do: a key leads to its own message only."""

    def grant_exhausted(self, run: SweepRun, wanted: int, limit: int) -> int:
        """How many more messages the sweep may exhaust; once a transaction."""
        sweep = self._store.sweeps[run.sweep_id]
        with self._store.changed:
            self._store.wait_until(lambda: sweep.counting is None)
            sweep.counting = self
        return max(0, min(wanted, limit - sweep.exhausted))

    def finish(self, run: SweepRun, slice_number: int, outcomes: Outcomes, server_us: int) -> None:
        """Note what becomes of the claimed messages."""
        store, clock = self._store, BatchClock(server_us, run.horizon.shift_us)
        entries: list[JournalEntry] = [
            exhausted_entry(slice_number, e, store.rows[e.message.key], clock)
            for e in outcomes.exhausted
        ]
        entries.append(batch_entry(slice_number, outcomes, clock))
        counted = (len(outcomes.exhausted), outcomes.held_back)
        self.enlist(partial(_count_exhausted, store.sweeps[run.sweep_id], *counted))
        self.enlist(partial(store.journal[run.sweep_id].extend, entries))
        gone = [d.message.key for d in outcomes.delivered]
        for key in gone + [e.message.key for e in outcomes.exhausted]:
            self.enlist(partial(store.rows.pop, key))
            self.enlist(partial(store.attempts.pop, key, None))
        now_us = micros(store.now)
        counters = {
            failed.key: (failed.attempts + 1, now_us + int(seconds * 1_000_000))
            for failed, _, seconds in outcomes.failed
        }
        self.enlist(partial(store.attempts.update, counters))

    def end_slice(self, run: SweepRun, slice_number: int, planned: int, reason: str | None) -> None:
        """Journal the end of a slice."""
        with self.transaction():
            with self._store.changed:
                self._fence(run)
            entry = SliceEntry(slice_number, planned, reason)
            self.enlist(partial(self._store.journal[run.sweep_id].append, entry))

    def _fence(self, run: SweepRun) -> None:
        sweep = self._store.sweeps[run.sweep_id]
        if not sweep.is_open:
            raise SweepClosedError(f"Sweep {run.sweep_id} was closed by another process")
        sweep.in_flight.add(self)

    def _end(self) -> None:
        with self._store.changed:
            for change in self._changes:
                change()
            self._changes.clear()
            self._release(0)
            for sweep in self._store.sweeps.values():
                sweep.in_flight.discard(self)
                sweep.counting = None if sweep.counting is self else sweep.counting
            self._store.changed.notify_all()

    def _release(self, kept: int) -> None:
        with self._store.changed:
            for key in self._locked[kept:]:
                self._store.holders.pop(key, None)
            del self._locked[kept:]


def _count_exhausted(sweep: MemorySweep, granted: int, held_back: int) -> None:
    sweep.exhausted += granted
    sweep.held_back += held_back
