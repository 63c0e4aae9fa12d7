"""A store in memory that removes messages as it claims them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from duesweep.core.message import BatchResult
from duesweep.stores.base import Claim, SweepRun
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_sessions import MemoryTaskSession


class TakingStore(MemoryStore):
    """Counts in `taken` and `claimed` the messages of each call."""

    def __init__(self, *rows: object) -> None:
        super().__init__(rows)  # type: ignore[arg-type]
        self.taken: list[int] = []
        self.claimed: list[int] = []

    @contextmanager
    def open_task(self) -> Iterator["TakingSession"]:
        yield TakingSession(self)


class TakingSession(MemoryTaskSession):
    """As a claim that nobody may hold, and that has to be complete."""

    can_take = True

    def __init__(self, store: TakingStore) -> None:
        super().__init__(store)
        self._counts = store

    def claim(self, run: SweepRun, claim_keys: Sequence[str]) -> Claim:
        self._counts.claimed.append(len(claim_keys))
        return super().claim(run, claim_keys)

    def take(self, run: SweepRun, claim_keys: Sequence[str]) -> Claim:
        self._counts.taken.append(len(claim_keys))
        return super().claim(run, claim_keys)

    def finish_taken(
        self, run: SweepRun, slice_number: int, result: BatchResult, server_us: int
    ) -> None:
        self.finish(run, slice_number, result, server_us)
