"""The driver's session on the store in memory: due messages, sweeps, commands and the journal."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, TypeVar
from uuid import UUID, uuid4

from duesweep.core.account import (
    FailureReason,
    SweepSummary,
    end_as_values,
)
from duesweep.core.change import Command, DueSpan, UnsettledCommand, WaitingMessage
from duesweep.core.errors import MessageError, SweepClosedError
from duesweep.core.message import Message
from duesweep.core.policy import Pause, Paused, Slicing
from duesweep.core.world import instant_of, micros
from duesweep.stores.base import OperatorDriver
from duesweep.stores.binding import Bound, SourceBinding
from duesweep.stores.due import Due, Horizon, Slices, Upcoming, Work
from duesweep.stores.journal import Backlog, Journal, Piece, Unsettled
from duesweep.stores.people import DroppedSource, People
from duesweep.stores.summary import lateness_of, packed, summary_of
from duesweep.stores.sweeps import SweepRun, Sweeps
from duesweep.stores.task import BETWEEN_FORWARDS
from duesweep_testing.builders import DelayedRow, message
from duesweep_testing.journal import BatchEntry, ChangeEntry, ExhaustedEntry, SliceEntry
from duesweep_testing.memory_state import MemoryState, MemorySweep

_PAGE_ROWS = 1_000
_MOST_REASONS = 3
_NEVER = float("inf")

_T = TypeVar("_T")


class MemoryDue(Due):
    """Due messages. Dues are instants here."""

    def __init__(self, store: MemoryState, journal: "MemoryJournal") -> None:
        self._store = store
        self._journal = journal

    def horizon(self) -> Horizon:
        return Horizon(self._store.now, self._store.now)

    def find_work(self, horizon: Horizon) -> Work | None:
        if self._eligible(horizon) or gone_counters(self._store):
            return Work()
        return Work(only_settles=True) if self._journal.has_dead() else None

    def next_due(self, horizon: Horizon) -> Upcoming:
        dues = [row.due for row in self._store.rows.values() if isinstance(row.due, datetime)]
        return Upcoming(min((due for due in dues if due >= horizon.before), default=None))

    def count_pending(self, horizon: Horizon, most: int | None = None) -> int:
        found = len(self._eligible(horizon))
        return found if most is None else min(found, most)

    def count_stored(self, since: datetime | None) -> int:
        return sum(_place(row) >= _bound(since, -_NEVER) for row in self._store.rows.values())

    def destinations(self, horizon: Horizon | None) -> Sequence[str]:
        rows = self._store.rows.values() if horizon is None else self._eligible(horizon)
        counts = Counter(message(row).destination for row in rows)
        return [name for name, _ in counts.most_common() if name]

    def plan(self, horizon: Horizon, slicing: Slicing) -> Slices:
        rows = self._eligible(horizon)
        slices = [list(each) for each in _pages(rows, _size(len(rows), slicing))] if rows else []
        with self._store.changed:
            name = f"plan {len(self._store.plans)}"
            self._store.plans[name] = slices
        return Slices(name, tuple(map(len, slices)))

    def claim_keys(self, plan: Slices, number: int) -> Sequence[Any]:
        """The one row of a slice."""
        rows = self._store.plans[plan.claim_keys_query][plan.begin + number]
        messages = [message(row) for row in rows]
        keys = [self._store.claim_key(one) for one in messages]
        sizes = [str(len(row.headers.encode()) + len(row.body or b"")) for row in rows]
        is_own = keys == [one.key for one in messages]
        return [
            SimpleNamespace(
                slice=number,
                claim_keys=",".join(keys),
                sizes=",".join(sizes),
                total=len(rows),
                forwards=BETWEEN_FORWARDS.join(map(_forward, messages)) if is_own else None,
            )
        ]

    def pauses(self) -> Sequence[Pause]:
        return self._store.pauses_in_force()

    def _eligible(self, horizon: Horizon) -> list[DelayedRow]:
        """Messages due, not in back-off and not paused, the earliest Due first."""
        store, now_us = self._store, micros(self._store.now)
        paused = Paused([one.pattern for one in store.pauses_in_force()], store.own_queue)
        with store.changed:
            due = [
                row
                for row in sorted(store.rows.values(), key=_place)
                if row.is_due(horizon.before) and _place(row) >= _bound(horizon.since, -_NEVER)
            ]
            counters = dict(store.attempts)
        _, free = paused.separate([message(row) for row in due])
        is_free = {one.key for one in free}
        return [
            row
            for row in due
            if row.key in is_free
            and (row.key not in counters or counters[row.key].next_attempt_at <= now_us)
        ]


def _forward(one: Message) -> str:
    """The destination as the plan has it. Headers that cannot be read have none."""
    return one.headers_text if isinstance(one.headers, MessageError) else one.destination or ""


class MemorySweeps(Sweeps):
    """Sweeps that are open. They live as long as `owner`, the driver's session."""

    def __init__(self, store: MemoryState, due: MemoryDue, owner: object) -> None:
        self._store, self._due, self._owner = store, due, owner

    def open(
        self, horizon: Horizon, *, engine: str | None = None, command: Command | None = None
    ) -> SweepRun:
        store, sweep_id = self._store, uuid4()
        with store.changed:
            gone = gone_counters(store) if command is None else []
            for key in gone:
                del store.attempts[key]
            store.journal[sweep_id], store.changes[sweep_id] = [], []
            store.sweeps[sweep_id] = MemorySweep(
                sweep_id, store.source, store.now, horizon.before, self._owner, engine, command
            )
            store.sweeps[sweep_id].attempts_changed = bool(gone)
        return SweepRun(sweep_id, horizon)

    def note_slices(self, run: SweepRun, plan: Slices) -> int:
        with self._store.changed:
            sweep = self._store.sweeps.get(run.sweep_id)
            if sweep is None:
                # Others took it for dead, and have settled it: its batches find it closed.
                return 0
            before = len(sweep.planned)
            sweep.planned += plan.planned
            sweep.horizon = run.horizon.before
        return before

    def progress(self, sweep_id: UUID) -> tuple[int, int]:
        entries = self._store.journal.get(sweep_id, ())
        batches = [one for one in entries if isinstance(one, BatchEntry)]
        exhausted = sum(isinstance(one, ExhaustedEntry) for one in entries)
        return len(batches), sum(one.dispatched + one.failed for one in batches) + exhausted

    def stop(self, sweep_id: UUID, after_seconds: float) -> None:
        with self._store.changed:
            sweep = self._store.sweeps.get(sweep_id)
            if sweep is not None and sweep.closed_at is None:
                stop_at = self._store.now + timedelta(seconds=after_seconds)
                sweep.stop_at = min(stop_at, sweep.stop_at or stop_at)

    def release(self, sweep_id: UUID) -> None:
        with self._store.changed:
            sweep = self._store.sweeps.get(sweep_id)
            if sweep is not None and sweep.owner is self._owner:
                sweep.owner = None

    def close(
        self,
        sweep_id: UUID,
        *,
        abandoned: bool,
        remaining: int | Horizon,
        reason: str | None = None,
        waits: bool = True,
    ) -> bool:
        store = self._store
        with store.changed:
            sweep = store.sweeps.get(sweep_id)
            if sweep is not None and waits:
                store.wait_until(lambda: not sweep.in_flight)
            if sweep is None or sweep.closed_at is not None or sweep.in_flight:
                return False
            if not waits and sweep.owner not in {None, self._owner}:
                return False
            if not isinstance(remaining, int):
                remaining = self._due.count_pending(remaining, most=1)
            sweep.remaining = remaining
            sweep.abandoned, sweep.reason, sweep.closed_at = abandoned, reason, store.now
            return True


class MemoryJournal(Journal):
    """The journal. `owner` is the driver's session."""

    def __init__(self, store: MemoryState, owner: object) -> None:
        self.source = store.source
        self._store, self._owner = store, owner
        # Dead sweeps that this session settles.
        self._kept: set[UUID] = set()

    @contextmanager
    def settling(self) -> Iterator[str | None]:
        store = self._store
        with store.changed:
            is_free = store.settler in {None, self}
            store.settler = self if is_free else store.settler
        try:
            yield None if is_free else "Another session"
        finally:
            if is_free:
                self.end_settling()

    def end_settling(self) -> None:
        """Let others settle."""
        with self._store.changed:
            if self._store.settler is self:
                self._store.settler = None
            while self._kept:
                sweep = self._store.sweeps.get(self._kept.pop())
                if sweep is not None and sweep.owner is self._owner:
                    sweep.owner = None

    def unsettled(self) -> Sequence[Unsettled]:
        return [
            Unsettled(
                one.sweep_id,
                one.started_at,
                one.closed_at is not None,
                one.owner is not None,
                one.sealed_at,
                one.command.name if one.command else None,
            )
            for one in list(self._store.sweeps.values())
        ]

    def adopt(self, sweep_id: UUID) -> bool:
        """A settler owns dead sweeps until it is the settler no more."""
        with self._store.changed:
            sweep = self._store.sweeps.get(sweep_id)
            if sweep is None or sweep_id in self._kept:
                return True
            if sweep.owner is not None:
                return False
            sweep.owner = self._owner
            self._kept.add(sweep_id)
            return True

    def has_dead(self) -> bool:
        """Whether no session lives for a sweep that is not settled."""
        return any(not one.is_alive for one in self.unsettled())

    def seal(self, sweep_id: UUID) -> None:
        with self._store.changed:
            sweep = self._store.sweeps.get(sweep_id)
            if sweep is not None and sweep.closed_at is not None:
                sweep.sealed_at = sweep.sealed_at or self._store.now

    def summary(self, sweep_id: UUID) -> tuple[SweepSummary, bool]:
        sweep = self._store.sweeps.get(sweep_id)
        if sweep is None:
            raise SweepClosedError(f"Another session has settled sweep {sweep_id}")
        entries = self._store.journal[sweep_id]
        batches = [one for one in entries if isinstance(one, BatchEntry)]
        exhausted = [one for one in entries if isinstance(one, ExhaustedEntry)]
        totals = _totals([one for one in entries if not isinstance(one, SliceEntry)])
        ends = [_end(one) for one in entries if isinstance(one, SliceEntry)]
        lateness = lateness_of(packed(one.lateness_ms) for one in batches)
        summary = summary_of(sweep, totals, ends, lateness)
        if summary.failed or summary.exhausted:
            summary = replace(summary, failures=self._failures(sweep, exhausted))
        changed = sweep.attempts_changed or any(one.attempts_changed for one in batches)
        return summary, changed or bool(exhausted)

    def _failures(
        self, sweep: MemorySweep, exhausted: Sequence[ExhaustedEntry]
    ) -> tuple[FailureReason, ...]:
        end = sweep.closed_at or self._store.now
        failed = [
            (counter.error_text, counter.destination)
            for counter in self._store.attempts.values()
            if micros(sweep.started_at) <= counter.last_failed_at <= micros(end)
        ]
        failed += [(one.error_text, one.destination) for one in exhausted]
        counts = Counter(text for text, _ in failed)
        where = dict(reversed(failed))
        return tuple(
            FailureReason(text, count, where[text])
            for text, count in counts.most_common(_MOST_REASONS)
        )

    def batches(self, sweep_id: UUID) -> Iterator[Sequence[bytes]]:
        for entry in list(self._store.journal.get(sweep_id, ())):
            if isinstance(entry, BatchEntry) and entry.outcomes is not None:
                yield [entry.outcomes]

    def pieces(self, sweep_id: UUID, *, command: bool) -> Sequence[Piece]:
        """An id is a row's place."""
        count = len(self._changes(sweep_id) if command else self._gone(sweep_id))
        return [
            Piece(sweep_id, command, page[0], page[-1]) for page in _pages(range(count), _PAGE_ROWS)
        ]

    def piece_rows(self, piece: Piece) -> Sequence[Any]:
        sweep = self._store.sweeps.get(piece.sweep_id)
        page = slice(piece.first_id, piece.last_id + 1)
        if sweep is None:
            return ()
        if sweep.command is not None:
            changes = self._changes(piece.sweep_id)[page]
            return [_change_row(piece.sweep_id, sweep.command, one) for one in changes]
        return [
            _exhausted_row(piece.sweep_id, one, sweep.first_failed_us[one.message_key])
            for one in self._gone(piece.sweep_id)[page]
        ]

    def _gone(self, sweep_id: UUID) -> list[ExhaustedEntry]:
        """Nothing of a sweep that another session has settled by now."""
        entries = self._store.journal.get(sweep_id, ())
        return [one for one in entries if isinstance(one, ExhaustedEntry)]

    def _changes(self, sweep_id: UUID) -> Sequence[ChangeEntry]:
        return self._store.changes.get(sweep_id, [])

    def retries_rows(self, most: int) -> Iterator[Sequence[Any]]:
        counters = sorted(self._store.attempts.items())
        for page in _pages(counters, most):
            yield [SimpleNamespace(message_key=key, **one._asdict()) for key, one in page]

    def command(self, sweep_id: UUID) -> UnsettledCommand | None:
        sweep = self._store.sweeps.get(sweep_id)
        if sweep is None or sweep.command is None:
            return None
        return UnsettledCommand(sweep.command, sweep.attempts_changed)

    def delete_settled(self, sweep_id: UUID, *, is_in_ledger: bool = True) -> None:  # noqa: ARG002
        with self._store.changed:
            for kept in (self._store.sweeps, self._store.journal, self._store.changes):
                with suppress(KeyError):
                    del kept[sweep_id]
            self._kept.discard(sweep_id)

    def backlog(self) -> Backlog:
        store = self._store
        with store.changed:
            entries = [one for each in store.journal.values() for one in each]
            changes = [one for each in store.changes.values() for one in each]
            sweeps = len(store.sweeps)
        batches = [one for one in entries if isinstance(one, BatchEntry)]
        whole = [one for one in entries if isinstance(one, ExhaustedEntry)]
        rows = sum(one.dispatched for one in batches) + len(whole) + len(changes)
        held = sum(len(one.outcomes or b"") for one in batches)
        held += sum(len(one.headers) + len(one.body or b"") for one in whole)
        held += sum(len(one.headers_text or "") + len(one.body or b"") for one in changes)
        return Backlog(rows, held, sweeps)


class MemoryBinding(SourceBinding):
    """It keeps no age."""

    def __init__(self, store: MemoryState) -> None:
        self.source = store.source
        self._store = store

    def read(self) -> Bound:
        return Bound(self._store.ledger_id)

    def bind(self, ledger_id: UUID) -> None:
        with self._store.changed:
            self._store.ledger_id = self._store.ledger_id or ledger_id


class MemoryPeople(People):
    """What people see and hold back."""

    def __init__(self, store: MemoryState) -> None:
        self.source = store.source
        self._store = store

    @contextmanager
    def look(self, span: DueSpan) -> Iterator[Iterator[Sequence[WaitingMessage]]]:
        start, end = _bound(span.start, -_NEVER), micros(span.end) if span.end else None
        rows = [
            row
            for row in sorted(self._store.rows.values(), key=_place)
            if _place(row) >= start and (end is None or _place(row) < end)
        ]
        yield ([self._waiting(row) for row in page] for page in _pages(rows, _PAGE_ROWS))

    def find(self, keys: Sequence[str], *, with_body: bool = False) -> Sequence[WaitingMessage]:
        rows = [self._store.rows[key] for key in dict.fromkeys(keys) if key in self._store.rows]
        return [self._waiting(row, with_body=with_body) for row in rows]

    def count_waiting(self, ends: Sequence[datetime]) -> Sequence[int]:
        bounds = [micros(end) for end in ends]
        found = Counter(bisect_right(bounds, _place(row)) for row in self._store.rows.values())
        return [found[bucket] for bucket in range(len(ends) + 1)]

    def _waiting(self, row: DelayedRow, *, with_body: bool = False) -> WaitingMessage:
        counter = self._store.attempts.get(row.key)
        shown = message(row, counter.attempts if counter else 0)
        waiting = WaitingMessage(
            shown if with_body else shown._replace(body=None),
            lock_key=row.key,
            due=row.due if isinstance(row.due, datetime) else None,
            body_bytes=shown.body_bytes,
        )
        if counter is None:
            return waiting
        next_attempt_at = instant_of(counter.next_attempt_at)
        return waiting._replace(next_attempt_at=next_attempt_at, error=counter.error_text)

    def pause(self, pattern: str, until: datetime | None, given_by: str, reason: str) -> None:
        found = Pause(pattern, self._store.now, until, given_by, reason)
        self._store.pauses[pattern] = found

    def resume(self, pattern: str) -> bool:
        was_paused = any(one.pattern == pattern for one in self._store.pauses_in_force())
        self._store.pauses.pop(pattern, None)
        return was_paused

    @contextmanager
    def keys(self) -> Iterator[Iterator[Sequence[str]]]:
        yield iter([list(self._store.rows)])

    def gone_counters(self, most: int) -> Sequence[str]:
        return gone_counters(self._store)[:most]

    def orphaned_journal(self) -> Sequence[UUID]:
        """None: a sweep and its journal leave together."""
        return ()

    def dropped(self) -> Sequence[DroppedSource]:
        """None: there is one source."""
        return ()

    def forget(self, source: str) -> int:  # noqa: ARG002 - the contract's
        """Nothing: there is one source."""
        return 0


class MemoryDriverSession(OperatorDriver):
    """Its sweeps live as long as this session: its leases end with it. Nothing here waits for a
    lock of a row.
    """

    def __init__(self, store: MemoryState) -> None:
        self.source = store.source
        self._store = store
        self.journal = MemoryJournal(store, self)
        self.due = MemoryDue(store, self.journal)
        self.sweeps = MemorySweeps(store, self.due, self)
        self.binding = MemoryBinding(store)
        self.people = MemoryPeople(store)
        # A simulation has another journal around it.
        self._end_settling = self.journal.end_settling

    def __enter__(self) -> "MemoryDriverSession":
        return self

    def __exit__(self, *error: object) -> None:
        self.end_leases()

    def end_leases(self) -> None:
        """Nothing shows any more that its sweeps live, or that it is a settler."""
        with self._store.changed:
            self._end_settling()
            for sweep in self._store.sweeps.values():
                sweep.owner = None if sweep.owner is self else sweep.owner

    def check(self) -> None:
        """All is there."""


def gone_counters(store: MemoryState) -> list[str]:
    """The keys of retry counters whose messages are gone."""
    return [key for key in store.attempts if key not in store.rows]


def _pages(items: Sequence[_T], most: int) -> Iterator[Sequence[_T]]:
    return (items[at : at + most] for at in range(0, len(items), most))


def _place(row: DelayedRow) -> float:
    """Its Due in microseconds; an infinite one comes first or last."""
    if isinstance(row.due, datetime):
        return micros(row.due)
    return _NEVER if row.due == "infinity" else -_NEVER


def _bound(moment: datetime | None, without: float) -> float:
    return without if moment is None else micros(moment)


def _size(found: int, slicing: Slicing) -> int:
    """How many messages each slice gets, but for the last."""
    return -(-found // slicing.count(found))


def _totals(entries: Sequence[BatchEntry | ExhaustedEntry]) -> list[SimpleNamespace]:
    """What `summary_of` adds up, a row a slice."""
    totals: dict[int, Counter[str]] = {}
    for entry in entries:
        of_slice = totals.setdefault(entry.slice_number, Counter())
        if isinstance(entry, ExhaustedEntry):
            of_slice["exhausted"] += 1
        else:
            of_slice["dispatched"] += entry.dispatched
            of_slice["failed"] += entry.failed
            of_slice["bytes"] += entry.body_bytes
    names = ("dispatched", "failed", "exhausted", "bytes")
    return [
        SimpleNamespace(slice=number, **{name: counts[name] for name in names})
        for number, counts in totals.items()
    ]


def _end(entry: SliceEntry) -> SimpleNamespace:
    return SimpleNamespace(slice=entry.slice_number, **end_as_values(entry.end))


def _exhausted_row(sweep_id: UUID, entry: ExhaustedEntry, first_failed_us: int) -> SimpleNamespace:
    """An exhausted message as the ledger reads it."""
    late_us = None if entry.due_us is None else entry.dispatched_us - entry.due_us
    row = asdict(entry) | {
        "sweep_id": str(sweep_id),
        "due": entry.due_us,
        "dispatched_at": entry.dispatched_us,
        "lateness_ms": None if late_us is None else late_us // 1_000,
        "body_bytes": len(entry.body or b""),
        "first_failed_at": first_failed_us,
        "last_failed_at": entry.dispatched_us,
        "headers_text": entry.headers,
    }
    return SimpleNamespace(**row)


def _change_row(sweep_id: UUID, command: Command, entry: ChangeEntry) -> SimpleNamespace:
    """A changed message as the ledger reads it."""
    row = asdict(entry) | {
        "sweep_id": str(sweep_id),
        "command": command.name.value,
        "given_by": command.given_by,
        "reason": command.reason,
        "changed_at": entry.changed_us,
        "due_before": entry.due_before_us,
        "due_after": entry.due_after_us,
        # Earlier versions delivered replayed messages themselves.
        "queue": None,
        "headers": entry.headers_text,
    }
    return SimpleNamespace(**row)
