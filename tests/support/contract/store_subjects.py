"""The stores of this project under test, but for the one in memory."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Generic, Protocol

from duesweep.core.account import end_of
from duesweep.core.message import Message
from duesweep.stores.sweeps import SweepRun
from duesweep_testing.builders import DelayedRow
from duesweep_testing.contract import Abilities
from duesweep_testing.journal import (
    BatchEntry,
    ChangeEntry,
    ExhaustedEntry,
    JournalEntry,
    SliceEntry,
)
from support.endpoint import Endpoint, S
from support.postgresql_server import PostgreSqlEndpoint


class OpenEndpoint(Protocol):
    """Opens an endpoint in a database of this time zone, in a new schema unless one is named."""

    def __call__(
        self, zone: str, schema: str | None = None
    ) -> AbstractContextManager[PostgreSqlEndpoint]: ...


class DelayedTableUnderTest(Generic[S]):
    """The store of `endpoint`, whose tables are there; by another dsn if one is given."""

    def __init__(self, endpoint: Endpoint[S], dsn: str | None = None) -> None:
        context = (endpoint.having(store__dsn=dsn) if dsn else endpoint).context()
        self.endpoint = endpoint
        self.store = context.store
        self.queue = context.queue
        self.own_queue = endpoint.name

    @property
    def abilities(self) -> Abilities:
        return self.endpoint.server.abilities

    @property
    def unreadable(self) -> Sequence[str]:
        return self.endpoint.rows.unreadable

    def now(self) -> datetime:
        return self.endpoint.due_in(0)

    def server_time(self) -> datetime:
        return self.endpoint.server.time()

    def load(self, rows: Iterable[DelayedRow]) -> list[DelayedRow]:
        return self.endpoint.load(rows)

    def claim_keys(self, rows: Iterable[DelayedRow]) -> list[str]:
        return self.endpoint.server.claim_keys(rows)

    def message(self, row: DelayedRow, attempts: int = 0) -> Message:
        return self.endpoint.rows.message(self.endpoint.server, row, attempts)

    def stored_headers(self, row: DelayedRow) -> str:
        return self.endpoint.rows.stored_headers(row)

    def waiting(self) -> set[str]:
        return set(self.endpoint.waiting())

    def reschedule(self, key: str, due: datetime) -> None:
        self.endpoint.rows.reschedule(self.endpoint.server, self.endpoint.delayed, key, due)

    def changes(self, run: SweepRun) -> list[ChangeEntry]:
        rows = self.endpoint.fetch(f"SELECT * FROM {self.endpoint.own_table('changes')}")
        mine = [row for row in rows if str(row.sweep_id).lower() == str(run.sweep_id)]
        return [_change_of(row) for row in sorted(mine, key=lambda row: int(row.id))]

    def attempts(self) -> dict[str, int]:
        return {key: row.attempts for key, row in self.endpoint.attempts().items()}

    def end_back_off(self) -> None:
        self.endpoint.end_back_off()

    def journal(self, run: SweepRun) -> list[JournalEntry]:
        server = self.endpoint.server
        return [_entry_of(server.entry_values(row)) for row in self.endpoint.journal(run.sweep_id)]

    def counters(self, run: SweepRun) -> tuple[int, int]:
        sweeps = self.endpoint.fetch(
            f"SELECT sweep_id, exhausted, over_limit FROM {self.endpoint.own_table('sweeps')}"
        )
        (row,) = (row for row in sweeps if str(row.sweep_id).lower() == str(run.sweep_id))
        return row.exhausted, row.over_limit

    def delivered(self) -> list[str]:
        return [row.headers for row in self.endpoint.queue_rows("Billing")]


def _change_of(row: Any) -> ChangeEntry:
    """A row of the journal's changes. PostgreSQL's has headers only once."""
    values = {field.name: getattr(row, field.name, None) for field in fields(ChangeEntry)}
    if not hasattr(row, "headers_text"):
        values["headers_text"] = row.headers
    return ChangeEntry(**values)


def _entry_of(values: dict[str, Any]) -> JournalEntry:
    """The account in a row of the journal."""
    values = values | {"slice_number": values["slice"]}
    if values["kind"] == "slice":
        row = SimpleNamespace(**values, careful_batches=values["error_text"])
        return SliceEntry(values["slice"], end_of(row))
    kinds = {"batch": BatchEntry, "exhausted": ExhaustedEntry}
    entry: type[JournalEntry] = kinds[values["kind"]]
    return entry(**{field.name: values[field.name] for field in fields(entry)})
