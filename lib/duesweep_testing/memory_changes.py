"""A session for an operator's command on the store in memory."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from duesweep.core.change import Change, ChangeKind
from duesweep.core.message import Message
from duesweep.core.store_clock import micros
from duesweep.stores.values import Claim, NewMessage, SweepRun
from duesweep_testing.builders import DelayedRow, message
from duesweep_testing.journal import change_entry
from duesweep_testing.memory_sessions import MemoryMessageSession


class MemoryChangeSession(MemoryMessageSession):
    """See `ChangesMessages`. A lock key is the message's key."""

    def hold(self, run: SweepRun, lock_keys: Sequence[str]) -> Claim:
        """Lock the messages that are still there, and that nobody else holds."""
        store = self._store
        with store.changed:
            self._fence(run)
            there = [store.rows[key] for key in lock_keys if key in store.rows]
            free = [row for row in there if store.holders.get(row.key, self) is self]
            self._locked += [row.key for row in free]
            store.holders.update(dict.fromkeys(self._locked, self))
            messages = tuple(message(row, store.attempts.get(row.key, (0, 0))[0]) for row in free)
        return Claim(
            messages,
            micros(store.now),
            skipped=len(there) - len(free),
            gone=len(lock_keys) - len(there),
            paused=tuple(one.pattern for one in store.pauses_in_force()),
        )

    def cancel(self, run: SweepRun, messages: Sequence[Message], server_us: int) -> None:
        """Journal messages whole, and remove them."""
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
        """Give messages a new Due, and journal which."""
        for one, due in messages:
            row = replace(self._store.rows[one.key], due=due.astimezone(UTC))
            self.enlist(partial(self._store.rows.update, {one.key: row}))
            if one.attempts:
                counter = {one.key: (one.attempts, micros(due))}
                self.enlist(partial(self._store.attempts.update, counter))
            change = Change(ChangeKind.RESCHEDULED, one, one.instant_us, micros(due))
            self._journal(run, change, server_us)

    def put_back(
        self, run: SweepRun, messages: Sequence[tuple[Change, NewMessage]], server_us: int
    ) -> Sequence[str]:
        """Store messages again, and journal them."""
        keys = []
        for change, new in messages:
            key = self.store(new)
            stored = change._replace(new_key=key, due_after=micros(new.due))
            self._journal(run, stored, server_us)
            keys.append(key)
        return keys

    def journal_changes(self, run: SweepRun, changes: Sequence[Change], server_us: int) -> None:
        """Journal what became of messages that are not in the store."""
        for change in changes:
            self._journal(run, change, server_us)

    def _journal(
        self, run: SweepRun, change: Change, server_us: int, row: DelayedRow | None = None
    ) -> None:
        entry = change_entry(change, server_us, row)
        self.enlist(partial(self._store.changes[run.sweep_id].append, entry))
