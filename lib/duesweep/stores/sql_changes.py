"""A session for an operator's command on a relational store: it journals each change, and a task's
session of its dialect makes it, by statements of operators.sql and batch.sql.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Self

from duesweep.core.change import Change, ChangeKind
from duesweep.core.errors import StoreError
from duesweep.core.message import Message
from duesweep.core.world import instant_of
from duesweep.stores.dialect import Values
from duesweep.stores.messages import NewMessage
from duesweep.stores.people import OperatorTask
from duesweep.stores.sql_task import SqlTask, storable_or_none
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.task import Claim


class SqlChanges(OperatorTask):
    """Holds messages whatever their Due, by a slice's session, and journals its changes to them."""

    def __init__(self, task: SqlTask) -> None:
        self.source = task.source
        self._task = task

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._task.__exit__(*error)

    def transaction(self) -> AbstractContextManager[None]:
        return self._task.transaction()

    def hold(self, run: SweepRun, lock_keys: Sequence[str]) -> Claim:
        begun = self._task.begin(run)
        if not lock_keys:
            return Claim((), begun.server_us, paused=begun.paused)
        rows = self._task.hold(lock_keys, run.horizon.zone)
        missing = len(lock_keys) - len(rows)
        # After the lock, in a statement of its own: rows that others hold are there, the rest is
        # gone.
        present = self._task.count_present(lock_keys) if missing else len(rows)
        skipped = min(missing, max(0, present - len(rows)))
        messages = self._task.messages(rows, in_back_off=True)
        return Claim(tuple(messages), begun.server_us, skipped=skipped, gone=missing - skipped)

    def cancel(self, run: SweepRun, messages: Sequence[Message], server_us: int) -> None:
        if not messages:
            return
        same = {"sweep_id": run.sweep_id, "changed_us": server_us}
        rows = [
            {**described, "due_before_us": m.instant_us, **self._task.stored(m)}
            for m, described in zip(messages, self._described(messages), strict=True)
        ]
        self._task.write_rows("journal_cancelled", same, rows)
        self._task.remove(messages)

    def reschedule(
        self, run: SweepRun, messages: Sequence[tuple[Message, datetime]], server_us: int
    ) -> None:
        if not messages:
            return
        instants = self._task.set_due(messages, run.horizon.zone)
        if len(instants) != len(messages):
            raise StoreError(
                f"{self.source} changed {len(instants)} of {len(messages)} rows that this command "
                "holds locked",
                advice="look for triggers or rules on the delayed table",
                transient=False,
            )
        self._postpone({m.key: instants[m.key] for m, _ in messages if m.attempts})
        changes = [
            Change(ChangeKind.RESCHEDULED, m, m.instant_us, instants[m.key]) for m, _ in messages
        ]
        self.journal_changes(run, changes, server_us)

    def put_back(
        self, run: SweepRun, messages: Sequence[tuple[Change, NewMessage]], server_us: int
    ) -> Sequence[str]:
        stored = self._task.put_back([new for _, new in messages], run.horizon.zone)
        changes = [
            change._replace(new_key=key, due_after=due_us)
            for (change, _), (key, due_us) in zip(messages, stored, strict=True)
        ]
        self.journal_changes(run, changes, server_us)
        return [key for key, _ in stored]

    def journal_changes(self, run: SweepRun, changes: Sequence[Change], server_us: int) -> None:
        same = {"sweep_id": run.sweep_id, "changed_us": server_us}
        described = self._described(change.message for change in changes)
        rows = [
            {
                **each,
                "change": change.kind.value,
                "due_before_us": change.due_before,
                "due_after_us": change.due_after,
                "undone": change.of,
                "new_key": change.new_key,
            }
            for each, change in zip(described, changes, strict=True)
        ]
        self._task.write_rows("journal_changes", same, rows)

    def _postpone(self, instants: dict[str, int]) -> None:
        """Let messages in back-off be tried again at their new Dues."""
        source = {"source": self.source}
        rows = [
            {"message_key": key, "new_due": instant_of(instant_us)}
            for key, instant_us in instants.items()
        ]
        self._task.write_rows("postpone_attempts", source, rows)

    def _described(self, messages: Iterable[Message]) -> list[Values]:
        """The columns of the journal that do not depend on the outcome."""
        return [
            {
                "message_key": m.key,
                "message_id": storable_or_none(m.message_id),
                "message_type": storable_or_none(m.message_type),
                "destination": self._task.destination_of(m),
                "attempts": m.attempts,
                "body_bytes": m.body_bytes,
            }
            for m in messages
        ]
