"""PostgreSQL as a dialect of the relational store: messages are found by their keys."""
# ruff: noqa: ARG002 - no dialect needs all that another one does

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from duesweep.core.address import TableName
from duesweep.core.message import Message
from duesweep.core.timeouts import Limits
from duesweep.drivers.postgresql.session import PostgreSqlSession, connect, literal
from duesweep.drivers.postgresql.wire import UuidArray
from duesweep.drivers.statements import Session
from duesweep.stores.checks_postgresql import check_tables
from duesweep.stores.dialect import Dialect, Location, Values, numbered
from duesweep.stores.kinds import TableKind
from duesweep.stores.summary import Lateness
from duesweep.stores.values import Horizon
from duesweep.stores.zone import horizon_in, zone_of

_BEFORE_ALL = "-infinity"
_END = ("infinity", "ffffffff-ffff-ffff-ffff-ffffffffffff")


@dataclass(frozen=True, slots=True)
class PostgreSql(Dialect):
    """Dues are compared in the writers' time zone, arrays are sent in one statement."""

    finds_quickly = True

    def connect(self, dsn: str, limits: Limits) -> PostgreSqlSession:
        return connect(dsn, limits)

    def quoted(self, table: TableName) -> str:
        return str(table)

    def check(self, session: Session, location: Location, delayed: TableName) -> None:
        assert isinstance(session, PostgreSqlSession)  # from `connect`
        check_tables(session, location)

    def estimate_rows(self, session: Session, table: TableName) -> int:
        return int(session.row("estimate_rows", schema=table.schema, table=table.table).rows)

    def lock(self, name: str) -> Values:
        """An advisory lock's key: 64 bits, so that others' keys are not met by chance."""
        digest = hashlib.sha256(name.encode()).digest()
        return {"lock_key": int.from_bytes(digest[:8], signed=True)}

    def holder(self, statements: Session, name: str) -> str | None:
        """The process and since when its session has been idle; a frozen process is idle, too."""
        rows = statements.rows("lock_holder", **self.lock(name))
        if not rows or rows[0].idle_since is None:
            return None
        _, _, process = rows[0].application.partition("duesweep, process ")
        named = f"Process {process}" if process else "Another process"
        return f"{named}, whose session has been idle since {rows[0].idle_since:%F %T} UTC,"

    def await_batches(
        self,
        statements: Session,
        source: str,
        sweep_id: UUID,
        *,
        waits: bool,
    ) -> bool:
        name = "await_batches" if waits else "are_batches_over"
        return bool(statements.rows(name, sweep_id=sweep_id))

    def prune_attempts(self, statements: Session, source: str) -> int:
        return statements.execute("prune_attempts", source=source)

    def lateness(self, statements: Session, sweep_id: UUID) -> Lateness:
        row = statements.row("lateness", sweep_id=sweep_id)
        return Lateness(row.p50, row.p95, row.longest)

    def keys(self, keys: Iterable[str], name: str = "keys") -> Values:
        return {name: UuidArray.of(list(keys))}

    def due_in(self, due: datetime | None) -> str:
        return _BEFORE_ALL if due is None else due.astimezone(UTC).isoformat()

    def due_out(self, due: datetime | None) -> datetime | None:
        return due

    def moment(self, moment: datetime | None) -> object:
        return moment

    def zoned(self, zone: str | None) -> Values:
        return {"zone": zone or "UTC"}

    def span(self, first: datetime | None, end: datetime | None, zone: str | None) -> Values:
        return {"first": first, "last": end, **self.zoned(zone)}

    def buckets(self, ends: Sequence[datetime], zone: str | None) -> Values:
        return {"ends": list(ends), **self.zoned(zone)}

    def pausing(self, location: Location, pattern: str) -> list[object]:
        return list(location.kind.pausing(pattern, location.addresses.default_schema))

    def bounds(
        self, kind: TableKind, since: datetime | None, firsts: Sequence[tuple[str, str]]
    ) -> str:
        first = (self.due_in(since), kind.lowest_key)
        pairs = [
            f"{literal(due)}::{kind.names['due_type']}, {literal(key)}::uuid"
            for due, key in (first, *firsts, _END)
        ]
        return numbered(pairs)

    def zone(self, session: Session, location: Location) -> str | None:
        return zone_of(session, location)

    def horizon(self, statements: Session, zone: str | None) -> Horizon:
        return horizon_in(zone or "UTC", statements)

    @contextmanager
    def stream(
        self,
        session: Session,
        location: Location,
        names: dict[str, str],
        seconds: float,
        *,
        is_ordered: bool = False,
    ) -> Iterator[Session]:
        """By a cursor of the same session, in a transaction."""
        statements = session.named(names)
        with session.wait_longer(seconds):
            if is_ordered:
                statements.row("set_first_rows_fast")
            yield statements

    def key(self, row: Any) -> str:
        key: str = row.id
        return key

    def message(self, kind: TableKind, row: Any, attempts: int) -> Message:
        return kind.read_message(row.id, row.due_us, row.instant_us, row, attempts)

    def open_task(self, location: Location) -> Any:
        from duesweep.stores.postgresql.task import PostgreSqlTaskSession  # noqa: PLC0415

        return PostgreSqlTaskSession(connect(location.dsn, location.timeouts.task), location)

    def open_changes(self, location: Location) -> Any:
        from duesweep.stores.postgresql.changing import PostgreSqlChangeSession  # noqa: PLC0415

        return PostgreSqlChangeSession(connect(location.dsn, location.timeouts.task), location)

    def open_messages(self, location: Location) -> Any:
        from duesweep.stores.postgresql.messages import PostgreSqlMessageSession  # noqa: PLC0415

        return PostgreSqlMessageSession(connect(location.dsn, location.timeouts.task), location)

    def set_up(self, location: Location) -> None:
        from duesweep.stores.postgresql.setup import PostgreSqlSetup  # noqa: PLC0415

        step = PostgreSqlSetup(
            location.dsn, "store.dsn", store=location, timeouts=location.timeouts
        )
        step.install(rebind=False)


POSTGRESQL = PostgreSql()
