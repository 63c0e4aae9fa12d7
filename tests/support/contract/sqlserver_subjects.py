"""The stores and queues on SQL Server under test."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duesweep import wiring
from duesweep.core.address import bracket_name
from duesweep.core.message import Message
from duesweep.stores.values import SweepRun
from duesweep.testing.builders import DelayedRow
from duesweep.testing.contract import REFUSED_BODY, Abilities, ArrivedMessages, JsonHeaders
from duesweep.testing.journal import JournalEntry
from support.contract.store_subjects import entry_of
from support.sqlserver_endpoint import SqlServerEndpoint
from support.sqlserver_rows import AS_DUE, due_text, shown
from support.timeouts import destination_of

_NOT_XML = (
    "<",
    "[]",
    "<ArrayOfHeaderInfo>",
    "<Headers />",
    "\udcff\udcfe",
    "<!DOCTYPE x><ArrayOfHeaderInfo />",
)


class SqlServerUnderTest:
    """The store of `endpoint`, whose tables are there: its claim keys are Dues."""

    def __init__(self, endpoint: SqlServerEndpoint) -> None:
        context = wiring.sweep_context(endpoint.config())
        self.endpoint = endpoint
        self.store = context.store
        self.queue = context.queue
        self.own_queue = endpoint.name
        stand_in = endpoint.server.stand_in
        self.abilities = Abilities(
            # More than the 1/300 s of `datetime`, so that both neighbours differ.
            tick=timedelta(milliseconds=4),
            first_due=datetime(1753, 1, 1, tzinfo=UTC),
            has_infinite_due=False,
            skips_locked=stand_in is None,
            stand_in=stand_in,
        )

    @property
    def unreadable(self) -> Sequence[str]:
        return _NOT_XML if self.endpoint.kind == "msmq" else JsonHeaders.unreadable

    def now(self) -> datetime:
        return self.endpoint.due_in(0)

    def server_time(self) -> datetime:
        return self.now()

    def load(self, rows: Iterable[DelayedRow]) -> list[DelayedRow]:
        rows, server = list(rows), self.endpoint.server
        has_nul = any("\0" in (destination_of(row) or "") for row in rows)
        if has_nul and self.endpoint.kind != "sqlserver" and server.stand_in is not None:
            pytest.skip(server.unsupported("holds no NUL in a column of text"))
        return self.endpoint.load(rows)

    def claim_keys(self, rows: Iterable[DelayedRow]) -> list[str]:
        # The server's own text of a Due: all its digits, or as many as a stand-in has.
        dues = [due_text(row.due) for row in rows]
        claim_keys = {due: self._claim_key(due) for due in dict.fromkeys(dues)}
        return [claim_keys[due] for due in dues]

    def message(self, row: DelayedRow, attempts: int = 0) -> Message:
        found = self.endpoint.rows.message(row, attempts)
        return found._replace(instant_us=found.due_us)

    def stored_headers(self, row: DelayedRow) -> str:
        return self.endpoint.rows.stored_headers(row)

    def waiting(self) -> set[str]:
        return set(self.endpoint.waiting())

    def reschedule(self, key: str, due: datetime) -> None:
        rows = self.endpoint.rows
        self.endpoint.execute(
            f"UPDATE {self.endpoint.delayed} SET {bracket_name(rows.due)} = {AS_DUE}"
            f" WHERE {rows.key_text} = ?",
            due_text(due),
            key,
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
        return [entry_of(_values(row)) for row in self.endpoint.journal(run.sweep_id)]

    def counters(self, run: SweepRun) -> tuple[int, int]:
        sweeps = self.endpoint.own_table("sweeps")
        text = f"SELECT exhausted, over_limit FROM {sweeps} WHERE sweep_id = ?"
        (row,) = self.endpoint.fetch(text, str(run.sweep_id))
        return row.exhausted, row.over_limit

    def delivered(self) -> list[str]:
        return [row.headers for row in self.endpoint.queue_rows("Billing")]

    def _claim_key(self, due: str) -> str:
        (row,) = self.endpoint.fetch(f"SELECT {shown(AS_DUE)} AS claim_key", due)
        claim_key: str = row.claim_key
        return claim_key


class SqlServerQueueUnderTest:
    """Queue tables: in the database of `endpoint`, or with `elsewhere` on a connection to its."""

    has_null_bodies = True

    def __init__(
        self, endpoint: SqlServerEndpoint, elsewhere: SqlServerEndpoint | None = None
    ) -> None:
        self.has_own_transaction = elsewhere is not None
        own = {"queues__default__dsn": elsewhere.database.dsn} if elsewhere else {}
        context = wiring.sweep_context(endpoint.set_up().config(**own))
        self.queue, self.store = context.queue, context.store
        self.tables = elsewhere or endpoint
        for queue in ("Billing", endpoint.name):
            self.create(queue)

    def create(self, address: str) -> None:
        self.tables.create_queue(address)

    def drop(self, address: str) -> None:
        self.tables.execute(f"DROP TABLE {self._table(address)}")

    def arrived(self, address: str) -> ArrivedMessages:
        return [(row.headers, row.body) for row in self.tables.queue_rows(address)]

    def refuse(self, address: str) -> None:
        self.tables.execute(
            f"ALTER TABLE {self._table(address)} ADD CHECK (Body <> 0x{REFUSED_BODY.hex()})"
        )

    @contextmanager
    def locked(self, address: str) -> Iterator[None]:
        table = self._table(address)
        lock = f"SELECT COUNT(*) FROM {table} WITH (TABLOCKX, HOLDLOCK)"
        if self.tables.server.stand_in is not None:
            # The hint locks nothing there.
            lock = f"ALTER TABLE {table} ADD locked int NULL"
        with self.tables.database.transaction() as connection:
            connection.execute(lock)
            yield

    def _table(self, address: str) -> str:
        return self.tables.addresses.parse(address).sql


def _values(row: Any) -> dict[str, Any]:
    values = dict(zip([column[0] for column in row.cursor_description], row, strict=True))
    late = array("q")
    late.frombytes(row.lateness_ms or b"")
    return values | {
        "lateness_ms": tuple(late),
        "attempts_changed": bool(row.attempts_changed),
        "headers": row.headers_text,
    }
