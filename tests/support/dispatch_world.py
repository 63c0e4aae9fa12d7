"""A store, its queues and a sweep, in which one slice is dispatched, or as many rounds as a run of
`sweep` makes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from duesweep.core.account import Account, BreakerReport, CarefulBatches, SliceEnd, SweepReport
from duesweep.core.errors import (
    DuesweepError,
)
from duesweep.core.headers import remove_forward_destination
from duesweep.core.world import SettableClock
from duesweep.stores.sweeps import SweepRun
from duesweep.sweep.claim_keys import ClaimKeys
from duesweep.sweep.limits import dispatch_slice
from duesweep.sweep.stop import Stop
from duesweep_testing.builders import DelayedRow, message
from duesweep_testing.journal import BatchEntry, ExhaustedEntry, SliceEntry
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_ledger import MemoryContext
from duesweep_testing.memory_queue import ArrivedMessage, MemoryQueue
from duesweep_testing.sweeps import context_of, open_sweep
from support.sweeps import job_of, run_sweep


@dataclass(slots=True)
class World:
    """A store, its queues, and one sweep of it; `job` holds settings of the dispatch."""

    store: MemoryStore
    queue: MemoryQueue = field(default_factory=lambda: MemoryQueue("Billing", "Shipping", "error"))
    clock: SettableClock = field(default_factory=SettableClock)
    job: dict[str, Any] = field(default_factory=dict)

    def sweep(self, keys: Sequence[str] | None = None, **settings: Any) -> SweepRun:
        """Run one slice of a new sweep over `keys`, or all that is there; the sweep."""
        run = open_sweep(self.store)
        self.run_slice(run, keys, **settings)
        return run

    def run_slice(
        self,
        run: SweepRun,
        keys: Sequence[str] | None = None,
        total: int | None = None,
        **settings: Any,
    ) -> None:
        """Run slice 0 of `run`, of which `total` keys were to be read (None: just these)."""
        keys = list(self.store.rows) if keys is None else keys
        settings = self.job | settings
        context = context_of(self.store, self.queue, settings.pop("clock", self.clock))
        job = job_of(context, run, **settings)
        total = len(keys) if total is None else total
        forwards = [self._forward(key) for key in keys]
        known = forwards if None not in forwards else ()
        dispatch_slice(job, 0, ClaimKeys(keys, [100] * len(keys), total, known))

    def _forward(self, key: str) -> str | None:
        row = self.store.rows.get(key)
        return None if row is None else message(row).destination

    def rounds(self, stop: Stop | None = None, **settings: Any) -> SweepReport:
        """Sweep in rounds, each of one slice on one session, by the world's clock: the report."""
        return run_sweep(self.context(**settings), stop=stop or Stop(clock=self.clock))

    def context(self, **settings: Any) -> MemoryContext:
        """The context of a sweep of one slice, on one session."""
        return context_of(
            self.store, self.queue, self.clock, **({"slices": 1} | self.job | settings)
        )

    def batches(self, run: SweepRun) -> list[tuple[int, int]]:
        """Dispatched and failed, batch by batch."""
        entries = self.store.journal[run.sweep_id]
        return [(e.dispatched, e.failed) for e in entries if isinstance(e, BatchEntry)]

    def counted(self, run: SweepRun) -> tuple[int, int]:
        """Dispatched and failed, however the messages were put into batches."""
        batches = self.batches(run)
        return sum(dispatched for dispatched, _ in batches), sum(failed for _, failed in batches)

    def exhausted(self, run: SweepRun) -> list[ExhaustedEntry]:
        return [e for e in self.store.journal[run.sweep_id] if isinstance(e, ExhaustedEntry)]

    def ends(self, run: SweepRun) -> list[SliceEntry]:
        """The ends of slices: their accounts and reasons."""
        ends = self._ends(run)
        return [replace(e, end=SliceEnd(e.end.account, e.end.reason)) for e in ends]

    def careful_batches(self, run: SweepRun) -> list[CarefulBatches]:
        return [one for e in self._ends(run) for one in e.end.careful_batches]

    def breakers(self, run: SweepRun) -> list[BreakerReport]:
        return [one for e in self._ends(run) for one in e.end.breakers]

    def _ends(self, run: SweepRun) -> list[SliceEntry]:
        return [e for e in self.store.journal[run.sweep_id] if isinstance(e, SliceEntry)]

    def trouble(self, queue: str, error: DuesweepError | None, *keys: str) -> None:
        """Let these messages (none given: all) meet `error` at `queue`."""
        self.queue.trouble[queue] = lambda m: error if not keys or m.key in keys else None


def world_of(*rows: DelayedRow, **job: Any) -> World:
    return World(MemoryStore(rows), job=job)


def slice_end(reason: str | None = None, **counts: int) -> SliceEntry:
    """The end of slice 0, with `given=...`, `claimed=...` and so on."""
    return SliceEntry(0, SliceEnd(Account(**counts), reason))


def one(row: DelayedRow) -> ArrivedMessage:
    """The row as it is to be delivered."""
    return ArrivedMessage(remove_forward_destination(row.headers), row.body)
