"""SQL Server as a dialect of the relational store.

A Due travels as text that is exact to the tick of a `datetime`; see batch.sql.
"""
# ruff: noqa: ARG002 - no dialect needs all that another one does

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

from duesweep.core.address import SqlServerAddresses
from duesweep.drivers.sqlserver.binding import bound_text, literal
from duesweep.drivers.sqlserver.dsn import database_of
from duesweep.drivers.sqlserver.session import connect
from duesweep.drivers.statements import Session
from duesweep.stores.checks_sqlserver import SQL_SERVER_TABLES
from duesweep.stores.dialect import Dialect, Location, numbered
from duesweep.stores.due import Horizon
from duesweep.stores.kinds import SQL_SERVER_KINDS, TableKind
from duesweep.stores.sqlserver_task import SqlServerTask
from duesweep.stores.summary import Lateness, aware, lateness_of

# The first and the last `datetime`.
_FIRST = "1753-01-01 00:00:00.000"
_END = "9999-12-31 23:59:59.997"


@dataclass(frozen=True, slots=True)
class SqlServer(Dialect):
    """Dues are UTC's."""

    statements = "sqlserver"
    kinds = SQL_SERVER_KINDS
    tables = SQL_SERVER_TABLES
    task = SqlServerTask

    database_of = staticmethod(database_of)
    connect = staticmethod(connect)

    def addresses(self, endpoint: str, schema: str, dsn: str) -> SqlServerAddresses:
        """They may name another database of the server."""
        return SqlServerAddresses(endpoint, schema, database_of(dsn))

    def bounds(self, kind: TableKind, since: datetime | None, ends: Sequence[Any] = ()) -> str:
        """No index leads to a part of one Due."""
        firsts = [(row.due, row.place) for row in ends[1:-1]]
        start = _FIRST if since is None else bound_text(since)
        first, end = (start, kind.lowest_key), (_END, kind.lowest_key)
        texts = [
            f"CAST(CONVERT(datetime2(7), {literal(due)}, 121) AS datetime), "
            f"CONVERT({kind.names['key_type']}, {literal(key)})"
            for due, key in (first, *firsts, end)
        ]
        return numbered(map(", ".join, pairwise(texts)))

    def horizon(self, session: Session, zone: str) -> Horizon:
        now = aware(session.row("horizon").horizon)
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

    def prune_attempts(self, session: Session, source: str) -> int:
        """In pieces, with few locks each."""
        session.execute("follow_rescheduled", source=source)
        pruned = 0
        while some := session.execute("prune_attempts", source=source):
            pruned += some
        return pruned

    def lateness(self, session: Session, sweep_id: UUID) -> Lateness:
        rows = session.rows("lateness", sweep_id=sweep_id)
        return lateness_of(row.lateness_ms for row in rows)


SQL_SERVER = SqlServer()
