"""A session for an operator's command on a store on SQL Server."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from duesweep.core.change import Change
from duesweep.core.message import Message
from duesweep.core.world import micros
from duesweep.drivers.sqlserver.binding import bound_text, due_of, due_text
from duesweep.drivers.sqlserver.errors import row_errors
from duesweep.stores.kinds import store_row
from duesweep.stores.relational.changing import RelationalChanges, instant_of
from duesweep.stores.sqlserver import split_lock_key
from duesweep.stores.sqlserver.account import listed
from duesweep.stores.sqlserver.task import SqlServerTaskSession
from duesweep.stores.values import NewMessage, SweepRun


class SqlServerChangeSession(SqlServerTaskSession, RelationalChanges):
    """Finds messages by their keys where these are indexed, else by Due and key. A new Due is a
    tick of the column: the first that is not before what was asked for.
    """

    def __enter__(self) -> "SqlServerChangeSession":
        return self

    def journal_changes(self, run: SweepRun, changes: Sequence[Change], server_us: int) -> None:
        """Journal changes, a row for each."""
        described = self._described(change.message for change in changes)
        same = {"sweep_id": run.sweep_id, "changed_us": server_us}
        self._statements.execute_many(
            "journal_changes",
            [
                each | same | _values(change)
                for each, change in zip(described, changes, strict=True)
            ],
        )

    def _hold(self, run: SweepRun, lock_keys: Sequence[str]) -> Sequence[Any]:  # noqa: ARG002 - zones need it
        self._claimed.begin()
        if self._kind.has_indexed_key:
            rows = self._statements.rows("hold_by_id", **listed(lock_keys))
        else:
            rows = self._statements.rows("hold", messages=_places(lock_keys))
        self._claimed.add(rows)
        return rows

    def _count_present(self, lock_keys: Sequence[str]) -> int:
        if self._kind.has_indexed_key:
            row = self._statements.row("count_present_by_id", **listed(lock_keys))
        else:
            row = self._statements.row("count_present", messages=_places(lock_keys))
        return int(row.present)

    def _key_of(self, row: Any) -> str:
        return str(row.message_key)

    def _journal_cancelled(
        self, run: SweepRun, messages: Sequence[Message], server_us: int
    ) -> None:
        for message, described in zip(messages, self._described(messages), strict=True):
            headers, text = self._kind.stored_headers(message, self._claimed.headers(message))
            self._statements.execute(
                "journal_cancelled",
                sweep_id=run.sweep_id,
                changed_us=server_us,
                due_before_us=message.instant_us,
                headers=headers,
                headers_text=text,
                body=message.body,
                **described,
            )

    def _reschedule(
        self,
        run: SweepRun,  # noqa: ARG002 - zones need it
        messages: Sequence[tuple[Message, datetime]],
    ) -> Mapping[str, int]:
        ticks = {message.key: bound_text(due) for message, due in messages}
        if self._kind.has_indexed_key:
            changed = sum(
                self._statements.execute("reschedule_by_id", message_key=key, new_due=tick)
                for key, tick in ticks.items()
            )
        else:
            places = [
                {
                    "due": self._claimed.due(message),
                    "key": message.key,
                    "new_due": ticks[message.key],
                }
                for message, _ in messages
            ]
            changed = self._statements.execute("reschedule", messages=json.dumps(places))
        instants = {key: micros(due_of(tick)) for key, tick in ticks.items()}
        return instants if changed == len(messages) else {}

    def _postpone(
        self, messages: Sequence[tuple[Message, datetime]], instants: Mapping[str, int]
    ) -> None:
        for message, _ in messages:
            self._statements.execute(
                "postpone_attempts",
                source=self.source,
                message_key=message.key,
                new_due=bound_text(instant_of(instants[message.key])),
            )

    def _store_all(
        self,
        run: SweepRun,  # noqa: ARG002 - zones need it
        messages: Sequence[NewMessage],
    ) -> Sequence[tuple[str, int]]:
        stored = []
        for message in messages:
            tick = due_of(bound_text(message.due))
            row = self._kind.new_row(message, self._endpoint)
            values = {"due": due_text(tick, "milliseconds"), **row}
            with row_errors():
                key = store_row(self._statements, self._kind, values)
            stored.append((key, micros(tick)))
        return stored


def _values(change: Change) -> dict[str, object]:
    return {
        "change": change.kind.value,
        "due_before_us": change.due_before,
        "due_after_us": change.due_after,
        "queue": change.queue,
        "undone": change.of,
        "new_key": change.new_key,
    }


def _places(lock_keys: Sequence[str]) -> str:
    """Dues and keys, as JSON."""
    places = map(split_lock_key, lock_keys)
    return json.dumps([{"due": due, "key": key} for due, key in places])
