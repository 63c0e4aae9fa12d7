"""SQL Server as a dialect of the relational store.

A Due travels as text that is exact to the tick of a `datetime`; see batch.sql.
"""
# ruff: noqa: ARG002 - no dialect needs all that another one does

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

from duesweep.core.errors import StoreError
from duesweep.core.message import Message
from duesweep.core.policy import SessionWaits
from duesweep.core.world import micros
from duesweep.drivers.sqlserver.binding import (
    bound_text,
    due_of,
    last_text,
    literal,
)
from duesweep.drivers.sqlserver.session import SqlServerSession, connect
from duesweep.drivers.statements import Session
from duesweep.stores.checks_sqlserver import SQL_SERVER_TABLES
from duesweep.stores.dialect import Dialect, Location, Values, batches_lock, numbered
from duesweep.stores.due import Horizon
from duesweep.stores.kinds import TableKind
from duesweep.stores.sqlserver_task import SqlServerTask, listed, lock_key
from duesweep.stores.summary import Lateness, lateness_of

# The first and the last `datetime`.
_FIRST = "1753-01-01 00:00:00.000"
_END = "9999-12-31 23:59:59.997"


@dataclass(frozen=True, slots=True)
class SqlServer(Dialect):
    """Dues are UTC's; lists are sent as texts."""

    statements = "sqlserver"
    tables = SQL_SERVER_TABLES
    task = SqlServerTask

    def connect(self, dsn: str, waits: SessionWaits) -> SqlServerSession:
        return connect(dsn, waits)

    def lock(self, name: str) -> Values:
        """An application lock's."""
        return {"lock": name}

    def await_batches(self, session: Session, source: str, sweep_id: UUID, *, waits: bool) -> bool:
        name = "await_batches" if waits else "are_batches_over"
        rows = session.rows(name, sweep_id=sweep_id, **self.lock(batches_lock(sweep_id)))
        if waits and rows and rows[0].answer < 0:
            raise StoreError(
                f"Batches of sweep {sweep_id} of {source} have not ended for 25 s; "
                "the next sweep closes it",
                transient=True,
            )
        return any(row.answer >= 0 and row.is_open for row in rows)

    def prune_attempts(self, session: Session, source: str) -> int:
        """In pieces, with few locks each."""
        if not session.row("find_gone_attempts", source=source).found:
            return 0
        session.execute("follow_rescheduled", source=source)
        pruned = 0
        while some := session.execute("prune_attempts", source=source):
            pruned += some
        return pruned

    def lateness(self, session: Session, sweep_id: UUID) -> Lateness:
        rows = session.rows("lateness", sweep_id=sweep_id)
        return lateness_of(row.lateness_ms for row in rows)

    def keys(self, keys: Iterable[str]) -> Values:
        return listed("keys", keys)

    def due_in(self, due: datetime | None) -> str:
        return _FIRST if due is None else bound_text(due)

    def due_out(self, due: str | None) -> datetime | None:
        return None if due is None else due_of(due)

    def moment(self, moment: datetime | None) -> object:
        return None if moment is None else bound_text(moment)

    def zoned(self, zone: str | None) -> Values:
        return {}

    def span(self, first: datetime | None, end: datetime | None, zone: str | None) -> Values:
        return {"first": self.due_in(first), "last": last_text(end)}

    def buckets(self, ends: Sequence[datetime], zone: str | None) -> Values:
        spans = zip((None, *ends), (*ends, None), strict=True)
        numbered_spans = [
            {"bucket": bucket, **self.span(first, end, zone)}
            for bucket, (first, end) in enumerate(spans)
        ]
        return {"spans": json.dumps(numbered_spans)}

    def pausing(self, location: Location, pattern: str) -> list[object]:
        return [{"fits": like} for like in location.kind.pausing(pattern, None)]

    def bounds(self, kind: TableKind, since: datetime | None, ends: Sequence[Any] = ()) -> str:
        """No index leads to a part of one Due."""
        firsts = [(row.due, row.place) for row in ends[1:-1]]
        first, end = (self.due_in(since), kind.lowest_key), (_END, kind.lowest_key)
        texts = [
            f"CAST(CONVERT(datetime2(7), {literal(due)}, 121) AS datetime), "
            f"CONVERT({kind.names['key_type']}, {literal(key)})"
            for due, key in (first, *firsts, end)
        ]
        return numbered(map(", ".join, pairwise(texts)))

    def horizon(self, session: Session, zone: str | None) -> Horizon:
        now = due_of(session.row("horizon").horizon)
        return Horizon(now, now)

    @contextmanager
    def stream(
        self, session: Session, location: Location, seconds: float, *, is_ordered: bool
    ) -> Iterator[Session]:
        """On a session of its own: one that is sending rows takes no other statement."""
        with (
            connect(location.dsn, location.timeouts.driver) as stream,
            stream.wait_longer(seconds),
        ):
            yield stream.named(session.names)

    def key(self, row: Any) -> str:
        return str(row.message_key)

    def lock_key(self, kind: TableKind, row: Any) -> str:
        """The message's key; if no key is indexed, its Due to the tick, and its key."""
        key = self.key(row)
        return key if kind.has_indexed_key else lock_key(row.due, key)

    def message(self, kind: TableKind, row: Any, attempts: int) -> Message:
        """Its Due is UTC's: it is the instant itself."""
        due_us = None if row.due is None else micros(due_of(row.due))
        if kind.raise_counters is not None:
            attempts = row.attempts
        return kind.read_message(self.key(row), due_us, due_us, row, attempts)


SQL_SERVER = SqlServer()
