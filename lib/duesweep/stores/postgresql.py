"""PostgreSQL as a dialect of the relational store."""
# ruff: noqa: ARG002 - no dialect needs all that another one does

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

from duesweep.core.message import Message
from duesweep.core.policy import SessionWaits
from duesweep.drivers.postgresql.session import PostgreSqlSession, connect
from duesweep.drivers.postgresql.start import literal
from duesweep.drivers.postgresql.wire import UuidArray
from duesweep.drivers.statements import Session
from duesweep.stores.checks_postgresql import POSTGRESQL_TABLES
from duesweep.stores.dialect import Dialect, Location, Values, numbered
from duesweep.stores.due import Horizon
from duesweep.stores.kinds import TableKind
from duesweep.stores.postgresql_task import PostgreSqlTask
from duesweep.stores.summary import Lateness
from duesweep.stores.zone import horizon_in, zone_of

_BEFORE_ALL = "-infinity"
# The first and the last place that a row can have.
_FIRST_PLACE, _LAST_PLACE = "(0,0)", "(4294967295,65535)"


@dataclass(frozen=True, slots=True)
class PostgreSql(Dialect):
    """Dues are compared in the writers' time zone, arrays are sent in one statement."""

    statements = "postgresql"
    tables = POSTGRESQL_TABLES
    task = PostgreSqlTask

    def connect(self, dsn: str, waits: SessionWaits) -> PostgreSqlSession:
        return connect(dsn, waits)

    def lock(self, name: str) -> Values:
        """An advisory lock's key: 64 bits, so that others' keys are not met by chance."""
        digest = hashlib.sha256(name.encode()).digest()
        return {"lock_key": int.from_bytes(digest[:8], signed=True)}

    def holder(self, session: Session, name: str) -> str | None:
        """The process and since when its session has been idle; a frozen process is also idle."""
        rows = session.rows("lock_holder", **self.lock(name))
        if not rows or rows[0].idle_since is None:
            return None
        _, _, process = rows[0].application.partition("duesweep, process ")
        named = f"Process {process}" if process else "Another process"
        return f"{named}, whose session has been idle since {rows[0].idle_since:%F %T} UTC,"

    def locker(self, row: Any) -> tuple[str | None, datetime | None]:
        if row.prepared is not None:
            return f"prepared transaction {row.prepared!r} of role {row.role}", row.since
        named = f" ({row.application})" if row.application else ""
        return f"session {row.pid}{named} of role {row.role}", row.since

    def await_batches(self, session: Session, source: str, sweep_id: UUID, *, waits: bool) -> bool:
        name = "await_batches" if waits else "are_batches_over"
        return bool(session.rows(name, sweep_id=sweep_id))

    def prune_attempts(self, session: Session, source: str) -> int:
        return session.execute("prune_attempts", source=source)

    def lateness(self, session: Session, sweep_id: UUID) -> Lateness:
        row = session.row("lateness", sweep_id=sweep_id)
        return Lateness(row.p50, row.p95, row.longest)

    def keys(self, keys: Iterable[str]) -> Values:
        return {"keys": UuidArray.of(list(keys))}

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

    def bounds(self, kind: TableKind, since: datetime | None, ends: Sequence[Any] = ()) -> str:
        """And whether the slice is read by place: all of it is in one Due, and on fewer pages than
        this Due has messages, all of which the index would lead to. The first and the last slice
        are open: a row that an UPDATE or VACUUM FULL moves is still in a slice.
        """
        inner = [(row.due, row.place) for row in ends[1:-1]]
        bounds = [(self.due_in(since), _FIRST_PLACE), *inner, ("infinity", _LAST_PLACE)]
        begun = Counter(row.due for row in ends[:-1] if row.has_ranges)
        page_bounds = [0, *(_page(place) for _, place in inner), ends[-1].pages if ends else 0]
        spans = []
        for number, ((due, first), (end_due, end)) in enumerate(pairwise(bounds)):
            pages = page_bounds[number + 1] - page_bounds[number]
            in_one = bool(ends) and ends[number].due == ends[number + 1].due
            by_place = in_one and pages < begun[ends[number].due] * ends[0].size
            start = ends[number].due if by_place else due
            at = [
                f"{literal(each)}::{kind.names['due_type']}, {literal(place)}::tid"
                for each, place in ((start, first), (end_due, end))
            ]
            spans.append(f"{', '.join(at)}, {str(by_place).lower()}")
        return numbered(spans)

    def zone(self, session: Session, location: Location) -> str | None:
        return zone_of(session, location)

    def horizon(self, session: Session, zone: str | None) -> Horizon:
        return horizon_in(zone or "UTC", session)

    @contextmanager
    def stream(
        self, session: Session, location: Location, seconds: float, *, is_ordered: bool
    ) -> Iterator[Session]:
        """By a cursor of the same session, in a transaction."""
        with session.wait_longer(seconds):
            if is_ordered:
                session.row("set_first_rows_fast")
            yield session

    def key(self, row: Any) -> str:
        key: str = row.id
        return key

    def message(self, kind: TableKind, row: Any, attempts: int) -> Message:
        return kind.read_message(row.id, row.due_us, row.instant_us, row, attempts)


POSTGRESQL = PostgreSql()


def _page(place: str) -> int:
    return int(place[1:].partition(",")[0])
