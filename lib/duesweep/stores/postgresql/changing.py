"""A session for an operator's command on a PostgreSQL store."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from duesweep.core.change import Change
from duesweep.core.message import Message
from duesweep.drivers.postgresql.errors import row_errors
from duesweep.drivers.postgresql.wire import UuidArray
from duesweep.stores.kinds import store_row
from duesweep.stores.postgresql.task import PostgreSqlTaskSession
from duesweep.stores.relational.changing import RelationalChanges, instant_of
from duesweep.stores.values import NewMessage, SweepRun


class PostgreSqlChangeSession(PostgreSqlTaskSession, RelationalChanges):
    """Finds messages by their keys, and stores Dues in the writers' time zone."""

    def __enter__(self) -> "PostgreSqlChangeSession":
        return self

    def journal_changes(self, run: SweepRun, changes: Sequence[Change], server_us: int) -> None:
        """Journal changes, all in one statement."""
        described = self._described(change.message for change in changes)
        self._statements.execute(
            "journal_changes",
            sweep_id=run.sweep_id,
            changed_us=server_us,
            changes=[change.kind.value for change in changes],
            keys=[each["message_key"] for each in described],
            message_ids=[each["message_id"] for each in described],
            message_types=[each["message_type"] for each in described],
            destinations=[each["destination"] for each in described],
            dues_before_us=[change.due_before for change in changes],
            dues_after_us=[change.due_after for change in changes],
            queues=[change.queue for change in changes],
            undone=[change.of for change in changes],
            new_keys=[change.new_key for change in changes],
            attempts=[each["attempts"] for each in described],
            body_bytes=[each["body_bytes"] for each in described],
        )

    def _hold(self, run: SweepRun, lock_keys: Sequence[str]) -> Sequence[Any]:
        keys = UuidArray.of(lock_keys)
        return self._statements.rows("hold", keys=keys, zone=run.horizon.zone or "UTC")

    def _count_present(self, lock_keys: Sequence[str]) -> int:
        return int(self._statements.row("count_present", keys=UuidArray.of(lock_keys)).present)

    def _key_of(self, row: Any) -> str:
        return str(row.id)

    def _journal_cancelled(
        self, run: SweepRun, messages: Sequence[Message], server_us: int
    ) -> None:
        described = self._described(messages)
        self._statements.execute(
            "journal_cancelled",
            sweep_id=run.sweep_id,
            changed_us=server_us,
            keys=UuidArray.of([m.key for m in messages]),
            message_ids=[each["message_id"] for each in described],
            message_types=[each["message_type"] for each in described],
            destinations=[each["destination"] for each in described],
            dues_before_us=[m.instant_us for m in messages],
            attempts=[each["attempts"] for each in described],
        )

    def _reschedule(
        self, run: SweepRun, messages: Sequence[tuple[Message, datetime]]
    ) -> Mapping[str, int]:
        rows = self._statements.rows(
            "reschedule",
            zone=run.horizon.zone or "UTC",
            keys=UuidArray.of([message.key for message, _ in messages]),
            dues=[due for _, due in messages],
        )
        return {row.id: row.instant_us for row in rows}

    def _postpone(
        self, messages: Sequence[tuple[Message, datetime]], instants: Mapping[str, int]
    ) -> None:
        self._statements.execute(
            "postpone_attempts",
            source=self.source,
            keys=UuidArray.of([message.key for message, _ in messages]),
            dues=[instant_of(instants[message.key]) for message, _ in messages],
        )

    def _store_all(
        self, run: SweepRun, messages: Sequence[NewMessage]
    ) -> Sequence[tuple[str, int]]:
        zone = run.horizon.zone or "UTC"
        # The statements that store a message depend on the session's zone.
        before = self._statements.row("session_zone").zone
        self._statements.row("set_zone", zone=zone)
        with row_errors():
            keys = [
                store_row(
                    self._statements,
                    self._kind,
                    {"due": message.due, **self._kind.new_row(message, self._endpoint)},
                )
                for message in messages
            ]
        self._statements.row("set_zone", zone=before)
        rows = self._statements.rows("read_instants", keys=UuidArray.of(keys), zone=zone)
        instants = {row.id: row.instant_us for row in rows}
        return [(key, instants[key]) for key in keys]
