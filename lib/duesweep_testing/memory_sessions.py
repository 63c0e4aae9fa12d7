"""Sessions on the store in memory: of tasks, of single messages and of operators' commands."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from duesweep.core.account import SliceEnd
from duesweep.core.change import Change, ChangeKind
from duesweep.core.errors import MessageError, SweepClosedError, SweepStoppedError, type_name
from duesweep.core.headers import set_forward_destination, write_json
from duesweep.core.message import Delivered, Exhausted, Failed, Message, Outcome
from duesweep.core.policy import RateLimit
from duesweep.core.world import micros
from duesweep.stores.messages import NewMessage
from duesweep.stores.people import OperatorTask
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.task import NOBODY, Claim, LeftAlone, TaskSession
from duesweep_testing.builders import DelayedRow, message
from duesweep_testing.journal import (
    JournalEntry,
    SliceEntry,
    batch_entry,
    change_entry,
    destination_of,
    exhausted_entry,
)
from duesweep_testing.memory_state import MemoryCounter, MemoryState, MemorySweep


class MemoryTaskSession(TaskSession):
    """A task's session, on dictionaries."""

    def __init__(self, store: MemoryState) -> None:
        self._store = store
        self._depth = 0
        self._changes: list[Callable[[], object]] = []
        self._locked: list[str] = []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction; nested, a savepoint. A rollback to a savepoint frees locks too."""
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
        """Make `change` when the transaction commits."""
        assert self._depth, "outside a transaction"
        self._changes.append(change)

    def claim(
        self,
        run: SweepRun,
        claim_keys: Sequence[str],
        left_alone: LeftAlone = NOBODY,  # noqa: ARG002 - a claim key leads to no other message
    ) -> Claim:
        store, now_us = self._store, micros(self._store.now)
        with store.changed:
            self._fence(run)
            stop_at = store.sweeps[run.sweep_id].stop_at
            if stop_at is not None and stop_at <= store.now:
                raise SweepStoppedError(f"Sweep {run.sweep_id} is to stop")
            rows = [store.rows[key] for key in dict.fromkeys(claim_keys) if key in store.rows]
            due = [row for row in rows if row.is_due(run.horizon.before)]
            free = [row for row in due if store.holders.get(row.key, self) is self]
            counted = [(row, store.attempts.get(row.key)) for row in free]
            messages = [
                message(row, counter.attempts if counter else 0)
                for row, counter in counted
                if counter is None or counter.next_attempt_at <= now_us
            ]
            self._locked += [m.key for m in messages]
            store.holders.update(dict.fromkeys(self._locked, self))
        return Claim(
            tuple(sorted(messages, key=lambda m: m.due_us or 0)),
            now_us,
            skipped=len(due) - len(free),
            gone=len(claim_keys) - len(rows),
            later=len(rows) - len(due) + len(free) - len(messages),
            paused=tuple(one.pattern for one in store.pauses_in_force()),
        )

    def reserve(self, limit: RateLimit, messages: int) -> float:
        now = self._store.clock.seconds()
        with self._store.changed:
            start = max(now, self._store.reserved.get(limit.pattern, now))
            self._store.reserved[limit.pattern] = start + messages * limit.seconds_each
        return start - now

    def claim_key(self, message: Message) -> str:
        return self._store.claim_key(message)

    def grant_exhausted(self, run: SweepRun, wanted: int, limit: int) -> int:
        """How many more messages the sweep may exhaust. Called once in a transaction."""
        sweep = self._store.sweeps[run.sweep_id]
        with self._store.changed:
            self._store.wait_until(lambda: sweep.counting is None)
            sweep.counting = self
        return max(0, min(wanted, limit - sweep.exhausted))

    def finish(
        self, run: SweepRun, slice_number: int, outcomes: Sequence[Outcome], server_us: int
    ) -> None:
        store = self._store
        delivered = [one for one in outcomes if isinstance(one, Delivered)]
        failures = [one for one in outcomes if isinstance(one, Failed)]
        exhausted = [one for one in outcomes if isinstance(one, Exhausted)]
        own = store.own_queue
        entries: list[JournalEntry] = [
            exhausted_entry(slice_number, e, store.rows[e.message.key], server_us, own_queue=own)
            for e in exhausted
        ]
        entries.append(batch_entry(slice_number, outcomes, server_us, own))
        first_failed_us = {
            e.message.key: store.attempts[e.message.key].first_failed_at
            if e.message.key in store.attempts
            else server_us
            for e in exhausted
        }
        counted = (sum(one.is_over_limit for one in failures), first_failed_us)
        self.enlist(partial(_count_exhausted, store.sweeps[run.sweep_id], *counted))
        self.enlist(partial(store.journal[run.sweep_id].extend, entries))
        gone = [d.message.key for d in delivered]
        for key in gone + [e.message.key for e in exhausted]:
            self.enlist(partial(store.rows.pop, key))
            self.enlist(partial(store.attempts.pop, key, None))
        counters = {
            one.message.key: self._counter(one.message, one.error, one.retry_seconds)
            for one in failures
        }
        self.enlist(partial(store.attempts.update, counters))

    def _counter(self, failed: Message, error: MessageError, seconds: float) -> MemoryCounter:
        """The retry counter of a message that has failed again."""
        now_us = micros(self._store.now)
        before = self._store.attempts.get(failed.key)
        return MemoryCounter(
            failed.attempts + 1,
            now_us + int(seconds * 1_000_000),
            before.first_failed_at if before else now_us,
            now_us,
            failed.message_id,
            destination_of(failed, self._store.own_queue),
            type_name(error),
            str(error),
        )

    def end_slice(self, run: SweepRun, slice_number: int, end: SliceEnd) -> None:
        with self.transaction():
            with self._store.changed:
                self._fence(run)
            entry = SliceEntry(slice_number, end)
            self.enlist(partial(self._store.journal[run.sweep_id].append, entry))

    def _fence(self, run: SweepRun) -> None:
        sweep = self._store.sweeps.get(run.sweep_id)
        if sweep is None or sweep.closed_at is not None:
            raise SweepClosedError(f"Another process closed sweep {run.sweep_id}")
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


def _count_exhausted(sweep: MemorySweep, over_limit: int, first_failed_us: dict[str, int]) -> None:
    sweep.exhausted += len(first_failed_us)
    sweep.over_limit += over_limit
    sweep.first_failed_us |= first_failed_us


def _note_changed(sweep: MemorySweep) -> None:
    sweep.attempts_changed = True


class MemoryChangeSession(MemoryTaskSession, OperatorTask):
    """An operator's command. A lock key is the message's key."""

    def hold(self, run: SweepRun, lock_keys: Sequence[str]) -> Claim:
        store = self._store
        with store.changed:
            self._fence(run)
            there = [store.rows[key] for key in lock_keys if key in store.rows]
            free = [row for row in there if store.holders.get(row.key, self) is self]
            self._locked += [row.key for row in free]
            store.holders.update(dict.fromkeys(self._locked, self))
            messages = tuple(message(row, self._attempts(row.key)) for row in free)
        return Claim(
            messages,
            micros(store.now),
            skipped=len(there) - len(free),
            gone=len(lock_keys) - len(there),
            paused=tuple(one.pattern for one in store.pauses_in_force()),
        )

    def cancel(self, run: SweepRun, messages: Sequence[Message], server_us: int) -> None:
        for one in messages:
            self._journal(
                run,
                Change(ChangeKind.CANCELLED, one, due_before=one.instant_us),
                server_us,
                self._store.rows[one.key],
            )
            self.enlist(partial(self._store.rows.pop, one.key))
            self.enlist(partial(self._store.attempts.pop, one.key, None))

    def reschedule(
        self, run: SweepRun, messages: Sequence[tuple[Message, datetime]], server_us: int
    ) -> None:
        for one, due in messages:
            row = replace(self._store.rows[one.key], due=due.astimezone(UTC))
            self.enlist(partial(self._store.rows.update, {one.key: row}))
            if counter := self._store.attempts.get(one.key):
                postponed = counter._replace(next_attempt_at=micros(due))
                self.enlist(partial(self._store.attempts.update, {one.key: postponed}))
            change = Change(ChangeKind.RESCHEDULED, one, one.instant_us, micros(due))
            self._journal(run, change, server_us)

    def put_back(
        self, run: SweepRun, messages: Sequence[tuple[Change, NewMessage]], server_us: int
    ) -> Sequence[str]:
        keys = []
        for change, new in messages:
            key = self._put(new)
            stored = change._replace(new_key=key, due_after=micros(new.due))
            self._journal(run, stored, server_us)
            keys.append(key)
        return keys

    def _put(self, message: NewMessage) -> str:
        text = message.stored_headers
        if text is None:
            headers = set_forward_destination(message.headers, message.destination)
            text = write_json(headers)
        row = DelayedRow(headers=text, body=message.body, due=message.due)
        self.enlist(partial(self._store.rows.update, {row.key: row}))
        return row.key

    def journal_changes(self, run: SweepRun, changes: Sequence[Change], server_us: int) -> None:
        for change in changes:
            self._journal(run, change, server_us)

    def _attempts(self, key: str) -> int:
        counter = self._store.attempts.get(key)
        return counter.attempts if counter else 0

    def _journal(
        self, run: SweepRun, change: Change, server_us: int, row: DelayedRow | None = None
    ) -> None:
        entry = change_entry(change, server_us, row, self._store.own_queue)
        self.enlist(partial(self._store.changes[run.sweep_id].append, entry))
        if entry.message_key in self._store.attempts:
            self.enlist(partial(_note_changed, self._store.sweeps[run.sweep_id]))
