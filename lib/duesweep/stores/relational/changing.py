"""What a session for an operator's command does in every dialect alike."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from duesweep.core.change import Change, ChangeKind
from duesweep.core.message import Message
from duesweep.errors import StoreError
from duesweep.stores.relational.account import destination_of, storable_or_none
from duesweep.stores.relational.task import RelationalTaskSession
from duesweep.stores.values import Claim, NewMessage, SweepRun

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RelationalChanges(RelationalTaskSession, ABC):
    """See `ChangesMessages`. A dialect finds, updates and stores rows."""

    def hold(self, run: SweepRun, lock_keys: Sequence[str]) -> Claim:
        """Lock the messages that are still there, and that nobody else holds."""
        server_us = self._fence(run)
        if not lock_keys:
            return Claim((), server_us, paused=self._paused)
        rows = self._hold(run, lock_keys)
        missing = len(lock_keys) - len(rows)
        # After the lock, in a statement of its own: what others hold is there, the rest is gone.
        present = self._count_present(lock_keys) if missing else len(rows)
        skipped = min(missing, max(0, present - len(rows)))
        counters = self._account.read_attempts([self._key_of(row) for row in rows])
        messages = [self._message(row, counters.get(self._key_of(row))) for row in rows]
        return Claim(tuple(messages), server_us, skipped=skipped, gone=missing - skipped)

    def cancel(self, run: SweepRun, messages: Sequence[Message], server_us: int) -> None:
        """Journal messages whole, and remove them."""
        if messages:
            self._journal_cancelled(run, messages, server_us)
            self._remove_all(messages)

    def reschedule(
        self, run: SweepRun, messages: Sequence[tuple[Message, datetime]], server_us: int
    ) -> None:
        """Give messages a new Due, and journal which."""
        if not messages:
            return
        instants = self._reschedule(run, messages)
        if len(instants) != len(messages):
            raise StoreError(
                f"{self.source} changed {len(instants)} of {len(messages)} rows that this command "
                "holds locked",
                advice="look for triggers or rules on the delayed table",
                transient=False,
            )
        failed = [(message, due) for message, due in messages if message.attempts]
        if failed:
            self._postpone(failed, instants)
        changes = [
            Change(ChangeKind.RESCHEDULED, m, m.instant_us, instants[m.key]) for m, _ in messages
        ]
        self.journal_changes(run, changes, server_us)

    def put_back(
        self, run: SweepRun, messages: Sequence[tuple[Change, NewMessage]], server_us: int
    ) -> Sequence[str]:
        """Store messages again, and journal them."""
        stored = self._store_all(run, [new for _, new in messages])
        changes = [
            change._replace(new_key=key, due_after=due_us)
            for (change, _), (key, due_us) in zip(messages, stored, strict=True)
        ]
        self.journal_changes(run, changes, server_us)
        return [key for key, _ in stored]

    @abstractmethod
    def journal_changes(self, run: SweepRun, changes: Sequence[Change], server_us: int) -> None:
        """Journal changes without headers and bodies."""

    @abstractmethod
    def _hold(self, run: SweepRun, lock_keys: Sequence[str]) -> Sequence[Any]:
        """Lock and read rows."""

    @abstractmethod
    def _count_present(self, lock_keys: Sequence[str]) -> int:
        """How many of these messages are there."""

    @abstractmethod
    def _key_of(self, row: Any) -> str:
        """The key of a row that is held."""

    @abstractmethod
    def _message(self, row: Any, counter: Any) -> Message:
        """The message in a row that is held."""

    @abstractmethod
    def _journal_cancelled(
        self, run: SweepRun, messages: Sequence[Message], server_us: int
    ) -> None:
        """Journal messages with headers and bodies as they are stored."""

    @abstractmethod
    def _reschedule(
        self, run: SweepRun, messages: Sequence[tuple[Message, datetime]]
    ) -> Mapping[str, int]:
        """Change Dues. Returns the instants, in microseconds, that were stored, by key."""

    @abstractmethod
    def _postpone(
        self, messages: Sequence[tuple[Message, datetime]], instants: Mapping[str, int]
    ) -> None:
        """Let messages be tried again at their new Dues."""

    @abstractmethod
    def _store_all(
        self, run: SweepRun, messages: Sequence[NewMessage]
    ) -> Sequence[tuple[str, int]]:
        """Store messages. Returns their keys, and their instants in microseconds."""

    def _described(self, messages: Iterable[Message]) -> list[dict[str, object]]:
        """What the journal says of each message whatever became of it."""
        return [
            {
                "message_key": m.key,
                "message_id": storable_or_none(m.message_id),
                "message_type": storable_or_none(m.message_type),
                "destination": destination_of(m, self._endpoint),
                "attempts": m.attempts,
                "body_bytes": m.body_bytes,
            }
            for m in messages
        ]


def instant_of(microseconds: int) -> datetime:
    """An instant that is given in microseconds since 1970-01-01 UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)
