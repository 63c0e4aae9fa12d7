"""PostgreSQL as a dialect of the relational store."""
# ruff: noqa: ARG002 - no dialect needs all that another one does

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

from duesweep.core.address import PostgreSqlAddresses
from duesweep.drivers.postgresql.session import connect, database_of
from duesweep.drivers.postgresql.start import literal
from duesweep.drivers.statements import Session
from duesweep.stores.checks_postgresql import POSTGRESQL_TABLES
from duesweep.stores.dialect import Dialect, Location, numbered
from duesweep.stores.kinds import POSTGRESQL_KINDS, TableKind
from duesweep.stores.postgresql_task import PostgreSqlTask
from duesweep.stores.summary import Lateness
from duesweep.stores.zone import horizon_in, zone_of

# The first and the last place that a row can have.
_FIRST_PLACE, _LAST_PLACE = "(0,0)", "(4294967295,65535)"


@dataclass(frozen=True, slots=True)
class PostgreSql(Dialect):
    """Dues are compared in the writers' time zone."""

    statements = "postgresql"
    kinds = POSTGRESQL_KINDS
    tables = POSTGRESQL_TABLES
    task = PostgreSqlTask

    database_of = staticmethod(database_of)
    connect = staticmethod(connect)
    zone = staticmethod(zone_of)
    horizon = staticmethod(horizon_in)

    def addresses(self, endpoint: str, schema: str, dsn: str) -> PostgreSqlAddresses:
        return PostgreSqlAddresses(endpoint, schema)

    def bounds(self, kind: TableKind, since: datetime | None, ends: Sequence[Any] = ()) -> str:
        """And whether the slice is read by place: all of it is in one Due, and on fewer pages than
        this Due has messages, all of which the index would lead to. The first and the last slice
        are open: a row that an UPDATE or VACUUM FULL moves is still in a slice.
        """
        inner = [(row.due, row.place) for row in ends[1:-1]]
        # A type without a zone would leave out the zone of a text.
        start = "-infinity" if since is None else since.astimezone(UTC).isoformat()
        bounds = [(start, _FIRST_PLACE), *inner, ("infinity", _LAST_PLACE)]
        begun = Counter(row.due for row in ends[:-1] if row.has_ranges)
        # A place is a page, and a number in it.
        pages_before = (int(place[1:].partition(",")[0]) for _, place in inner)
        page_bounds = [0, *pages_before, ends[-1].pages if ends else 0]
        spans = []
        for number, ((due, first), (end_due, end)) in enumerate(pairwise(bounds)):
            pages = page_bounds[number + 1] - page_bounds[number]
            in_one = bool(ends) and ends[number].due == ends[number + 1].due
            by_place = in_one and pages < begun[ends[number].due] * ends[0].size
            first_due = ends[number].due if by_place else due
            at = [
                f"{literal(each)}::{kind.names['due_type']}, {literal(place)}::tid"
                for each, place in ((first_due, first), (end_due, end))
            ]
            spans.append(f"{', '.join(at)}, {str(by_place).lower()}")
        return numbered(spans)

    @contextmanager
    def stream(
        self, session: Session, location: Location, seconds: float, *, is_ordered: bool
    ) -> Iterator[Session]:
        """By a cursor of the same session, in a transaction."""
        with session.wait_longer(seconds):
            if is_ordered:
                session.row("set_first_rows_fast")
            yield session

    def prune_attempts(self, session: Session, source: str) -> int:
        return session.execute("prune_attempts", source=source)

    def lateness(self, session: Session, sweep_id: UUID) -> Lateness:
        row = session.row("lateness", sweep_id=sweep_id)
        return Lateness(row.p50, row.p95, row.longest)


POSTGRESQL = PostgreSql()
