"""The stores of this project under test, but for the one in memory."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import fields
from datetime import datetime
from typing import Any

from duesweep import wiring
from duesweep.core.account import SliceAccount, SliceEnd
from duesweep.core.message import Message
from duesweep.stores.values import SweepRun
from duesweep.testing.builders import DelayedRow
from duesweep.testing.contract import Abilities, JsonHeaders
from duesweep.testing.journal import BatchEntry, ExhaustedEntry, JournalEntry, SliceEntry
from support.endpoint import Endpoint
from support.timeouts import timeout_headers, timeout_of
from support.timeouts_endpoint import timeout_destination

# By the time zone of a database and a schema in it.
OpenEndpoint = Callable[[str, str], AbstractContextManager[Endpoint]]


class PostgreSqlUnderTest(JsonHeaders):
    """The store of `endpoint`, whose tables are there."""

    abilities = Abilities()

    def __init__(self, endpoint: Endpoint) -> None:
        context = wiring.sweep_context(endpoint.config())
        self.endpoint = endpoint
        self.store = context.store
        self.queue = context.queue
        self.own_queue = endpoint.name

    def now(self) -> datetime:
        return self.endpoint.due_in(0)

    def server_time(self) -> datetime:
        time: datetime = self.endpoint.fetch("SELECT now()")[0][0]
        return time

    def load(self, rows: Iterable[DelayedRow]) -> list[DelayedRow]:
        stored = list(rows)
        self.endpoint.load(stored)
        return stored

    def message(self, row: DelayedRow, attempts: int = 0) -> Message:
        return super().message(row, attempts)._replace(instant_us=self._instant_us(row))

    def _instant_us(self, row: DelayedRow) -> int | None:
        """What this session's clock, the writers', shows at Due is what UTC's shows then."""
        if row.due_us is None:
            return None
        text = "SELECT (extract(epoch FROM $1::timestamptz::timestamp) * 1000000)::bigint"
        return int(self.endpoint.fetch(text, row.due)[0][0])

    def claim_keys(self, rows: Iterable[DelayedRow]) -> list[str]:
        return [row.key for row in rows]

    def waiting(self) -> set[str]:
        return set(self.endpoint.waiting())

    def reschedule(self, key: str, due: datetime) -> None:
        self.endpoint.execute(
            f"UPDATE {self.endpoint.delayed} SET due = $1 WHERE id = $2", due, key
        )

    def open_sweep(self) -> SweepRun:
        with self.store.open_driver() as driver:
            return driver.open_sweep(driver.horizon())

    def close_sweep(self, run: SweepRun) -> None:
        with self.store.open_driver() as driver:
            driver.close_sweep(run.sweep_id, abandoned=True, remaining=0)

    def attempts(self) -> dict[str, int]:
        return {key: row.attempts for key, row in self.endpoint.attempts().items()}

    def end_back_off(self) -> None:
        self.endpoint.end_back_off()

    def journal(self, run: SweepRun) -> list[JournalEntry]:
        rows = self.endpoint.fetch(
            "SELECT *, (extract(epoch FROM due) * 1000000)::bigint AS due_us,"
            " (extract(epoch FROM dispatched_at) * 1000000)::bigint AS dispatched_us"
            f" FROM {self.endpoint.own_table('journal')} WHERE sweep_id = $1 ORDER BY id",
            run.sweep_id,
        )
        return [entry_of(_values(row)) for row in rows]

    def counters(self, run: SweepRun) -> tuple[int, int]:
        sweeps = self.endpoint.own_table("sweeps")
        text = f"SELECT exhausted, over_limit FROM {sweeps} WHERE sweep_id = $1"
        (row,) = self.endpoint.fetch(text, run.sweep_id)
        return row.exhausted, row.over_limit

    def delivered(self) -> list[str]:
        return [row.headers for row in self.endpoint.queue_rows("Billing")]


class TimeoutsUnderTest(PostgreSqlUnderTest):
    """The same with SQL persistence's table."""

    def reschedule(self, key: str, due: datetime) -> None:
        self.endpoint.execute(
            f"UPDATE {self.endpoint.delayed} SET \"Time\" = $1::timestamptz AT TIME ZONE 'UTC'"
            ' WHERE "Id" = $2',
            due,
            key,
        )

    def message(self, row: DelayedRow, attempts: int = 0) -> Message:
        return timeout_of(row, timeout_destination(row), attempts)

    def stored_headers(self, row: DelayedRow) -> str:
        return timeout_headers(row)


def entry_of(values: dict[str, Any]) -> JournalEntry:
    """The account in a row of the journal."""
    values = values | {"slice_number": values["slice"]}
    if values["kind"] == "slice":
        account = SliceAccount(*(values[field.name] for field in fields(SliceAccount)))
        return SliceEntry(values["slice"], SliceEnd(account, values["reason"]))
    kinds = {"batch": BatchEntry, "exhausted": ExhaustedEntry}
    entry: type[JournalEntry] = kinds[values["kind"]]
    return entry(**{field.name: values[field.name] for field in fields(entry)})


def _values(row: Any) -> dict[str, Any]:
    return row._asdict() | {
        "lateness_ms": tuple(row.lateness_ms or ()),
        "message_key": str(row.message_key),
    }
