"""Stores in memory that claim as others have to: by the messages' Due, or by moving them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from duesweep.core.errors import UnusualBatchError
from duesweep.core.message import Address, Delivered, Message
from duesweep.core.world import micros
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.task import NOBODY, Claim, Forwarded, LeftAlone, Moved, Selection, Table
from duesweep.stores.tombstone import Tombstones
from duesweep.sweep.delivery import group_by_destination
from duesweep_testing.builders import DelayedRow
from duesweep_testing.contract.memory import MemoryUnderTest
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_queue import MemoryTable
from duesweep_testing.memory_sessions import MemoryTaskSession


class DueKeyStore(MemoryStore):
    """Claim keys are Dues."""

    def claim_key(self, message: Message) -> str:
        return str(message.due_us)

    @contextmanager
    def open_task(self) -> Iterator["DueKeySession"]:
        yield DueKeySession(self)


class DueKeySession(MemoryTaskSession):
    """For each claim key the first message of its Due that can be claimed."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self._store = store
        self._left_alone: LeftAlone = NOBODY

    def claim(
        self, run: SweepRun, claim_keys: Sequence[str], left_alone: LeftAlone = NOBODY
    ) -> Claim:
        self._left_alone = left_alone
        wanted, keys = Counter(claim_keys), []
        with self._store.changed:
            for row in self._store.rows.values():
                if wanted[str(row.due_us)] and self._is_free(row):
                    wanted[str(row.due_us)] -= 1
                    keys.append(row.key)
            claim = super().claim(run, keys)
            skipped, later = self._explained(+wanted)
        gone = wanted.total() - skipped - later
        return replace(claim, skipped=skipped, gone=gone, later=later)

    def _explained(self, missing: Counter[str]) -> tuple[int, int]:
        """How many of the missing are held by others, and how many wait for another attempt."""
        rows = [row for row in self._store.rows.values() if not self._is_left(row)]
        held = Counter(str(row.due_us) for row in rows if row.key in self._others())
        waiting = Counter(str(row.due_us) for row in rows if not self._is_eligible(row))
        skipped = missing & held
        return skipped.total(), ((missing - skipped) & waiting).total()

    def _others(self) -> set[str]:
        return {key for key, holder in self._store.holders.items() if holder is not self}

    def _is_left(self, row: DelayedRow) -> bool:
        return row.key in self._left_alone.get(str(row.due_us), ())

    def _is_free(self, row: DelayedRow) -> bool:
        is_held = row.key in self._store.holders or self._is_left(row)
        return not is_held and self._is_eligible(row)

    def _is_eligible(self, row: DelayedRow) -> bool:
        counter = self._store.attempts.get(row.key)
        return counter is None or counter.next_attempt_at <= micros(self._store.now)


class DueKeysUnderTest(MemoryUnderTest):
    """The store in memory, with Dues for claim keys."""

    def __init__(self) -> None:
        super().__init__(DueKeyStore())

    def claim_keys(self, rows: Iterable[DelayedRow]) -> list[str]:
        return [str(row.due_us) for row in rows]


class MovingStore(MemoryStore):
    """Counts in `moved` and `claimed` the messages of each call."""

    def __init__(self, *rows: object) -> None:
        super().__init__(rows)  # type: ignore[arg-type]
        self.moved: list[int] = []
        self.claimed: list[int] = []

    @contextmanager
    def open_task(self) -> Iterator["MovingSession"]:
        yield MovingSession(self)


class MovingSession(MemoryTaskSession):
    """As a claim that must not be locked, and that has to be complete."""

    can_move = True

    def __init__(self, store: MovingStore) -> None:
        super().__init__(store)
        self._counts = store
        self._delivered: list[Delivered] = []

    def claim(
        self, run: SweepRun, claim_keys: Sequence[str], left_alone: LeftAlone = NOBODY
    ) -> Claim:
        self._counts.claimed.append(len(claim_keys))
        return super().claim(run, claim_keys, left_alone)

    @contextmanager
    def select(
        self, run: SweepRun, groups: Sequence[Forwarded], left_alone: LeftAlone = NOBODY
    ) -> Iterator[Selection]:
        claim_keys = [key for group in groups for key in group.keys]
        self._counts.moved.append(len(claim_keys))
        with self.transaction():
            claim = super().claim(run, claim_keys, left_alone)
            if claim.skipped:
                raise UnusualBatchError("other sessions hold messages")
            unreadable, to_move = group_by_destination(claim.messages)
            if unreadable:
                raise UnusualBatchError(str(unreadable[0].error))
            yield Selection([*to_move], (claim, to_move))

    def move(self, run: SweepRun, selection: Selection, tables: Mapping[Address, Table]) -> Moved:  # noqa: ARG002 - it is claimed
        claim, to_move = selection.rest
        self._delivered = []
        for address, messages in to_move.items():
            table = tables[address]
            assert isinstance(table, MemoryTable)
            if table.session.deliver(table.name, messages):
                raise UnusualBatchError("a message was refused")
            self._delivered += [Delivered(message, table.name) for message in messages]
        tombstones = Tombstones.of(self._delivered, self._counts.own_queue)
        return Moved(tombstones, claim.server_us, claim.gone, claim.later, claim.paused)

    def finish_moved(self, run: SweepRun, slice_number: int, moved: Moved, server_us: int) -> None:
        assert len(moved.tombstones.keys) == len(self._delivered)
        self.finish(run, slice_number, self._delivered, server_us)
