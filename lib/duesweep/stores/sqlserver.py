"""SQL Server as a dialect of the relational store.

A Due travels as text that is exact to the tick of a `datetime`; see batch.sql.
"""
# ruff: noqa: ARG002 - no dialect needs all that another one does

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from duesweep.checks.tables import SQL_SERVER_QUEUE_RIGHTS, FoundTable, WantedIndex
from duesweep.core.account import FORMAT_MARK
from duesweep.core.address import SqlServerTable, bracket_name
from duesweep.core.errors import ConfigError, Problem, StoreError, TransactionLostError
from duesweep.core.message import Message
from duesweep.core.policy import Limits
from duesweep.core.world import micros
from duesweep.drivers.sqlserver.binding import (
    bound_text,
    creation,
    due_of,
    key_list,
    last_text,
    literal,
    script,
)
from duesweep.drivers.sqlserver.catalog import (
    find_table,
    is_there,
    missing_rights,
    similar_tables,
)
from duesweep.drivers.sqlserver.dsn import database_of
from duesweep.drivers.sqlserver.session import SqlServerSession, connect
from duesweep.drivers.statements import Session
from duesweep.stores.base import Horizon
from duesweep.stores.checks_sqlserver import check_session, delayed_index_notices
from duesweep.stores.dialect import Dialect, Location, Values, numbered
from duesweep.stores.installed import IndexCreated
from duesweep.stores.journal import sweep_lock
from duesweep.stores.kinds import TableKind
from duesweep.stores.sqlserver_claims import ClaimsByDue, lock_key
from duesweep.stores.summary import Lateness, lateness_of, packed

# Where `datetime` begins and ends.
_FIRST = "1753-01-01 00:00:00.000"
_END = "9999-12-31 23:59:59.997"


@dataclass(frozen=True, slots=True)
class SqlServer(Dialect):
    """Dues are UTC's; lists are sent as texts."""

    statements = "sqlserver"
    queue_rights = SQL_SERVER_QUEUE_RIGHTS
    body_string = "BodyString"

    def connect(self, dsn: str, limits: Limits) -> SqlServerSession:
        return connect(dsn, limits)

    def quoted(self, table: SqlServerTable) -> str:
        return table.sql

    def find_delayed(self, session: Session, location: Location) -> SqlServerTable:
        return find_delayed(session, location)

    def table_notices(
        self, session: SqlServerSession, location: Location, delayed: SqlServerTable
    ) -> Sequence[Problem]:
        """What is missing of the delayed table's indexes."""
        return delayed_index_notices(session, location, delayed)

    def estimate_rows(self, session: Session, table: SqlServerTable) -> int:
        return int(session.row("estimate_rows", table=table.sql).rows)

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

    def keys(self, keys: Iterable[str], name: str = "keys") -> Values:
        text, separator = key_list(keys)
        return {name: text, "separator": separator}

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

    def bounds(
        self, kind: TableKind, since: datetime | None, firsts: Sequence[tuple[str, str]]
    ) -> str:
        first, end = (self.due_in(since), kind.lowest_key), (_END, kind.lowest_key)
        pairs = [
            f"CAST(CONVERT(datetime2(7), {literal(due)}, 121) AS datetime), "
            f"CONVERT({kind.names['key_type']}, {literal(key)})"
            for due, key in (first, *firsts, end)
        ]
        return numbered(pairs)

    def horizon(self, session: Session, zone: str | None) -> Horizon:
        now = due_of(session.row("horizon").horizon)
        return Horizon(now, now)

    @contextmanager
    def stream(
        self,
        session: Session,
        location: Location,
        seconds: float,
        *,
        is_ordered: bool = False,
    ) -> Iterator[Session]:
        """On a session of its own: one that is sent rows takes no other statement meanwhile."""
        with (
            connect(location.dsn, location.timeouts.driver) as stream,
            stream.wait_longer(seconds),
        ):
            yield stream.named(session.names)

    def key(self, row: Any) -> str:
        return str(row.message_key)

    def lock_key(self, kind: TableKind, row: Any) -> str:
        """The message's key; where no key is indexed, its Due to the tick, and its key."""
        key = self.key(row)
        return key if kind.has_indexed_key else lock_key(row.due, key)

    def message(self, kind: TableKind, row: Any, attempts: int) -> Message:
        """Its Due is UTC's: it is the instant itself."""
        due_us = None if row.due is None else micros(due_of(row.due))
        if kind.raise_counters is not None:
            attempts = row.attempts
        return kind.read_message(self.key(row), due_us, due_us, row, attempts)

    def claims(
        self, session: SqlServerSession, location: Location, delayed: SqlServerTable
    ) -> ClaimsByDue:
        return ClaimsByDue(session, location, delayed)

    def fence(self, sweep_id: UUID) -> Values:
        return {"sweep_id": sweep_id, **self.lock(batches_lock(sweep_id))}

    def count_exhausted(self, session: Session, sweep_id: UUID) -> int | None:
        lock = self.lock(f"{batches_lock(sweep_id)}/exhausted")
        row = session.row("lock_sweep_counters", sweep_id=sweep_id, **lock)
        return None if row.answer < 0 else int(row.exhausted)

    def late(self, late_ms: Sequence[int]) -> object:
        """Packed, since there are no arrays."""
        return packed(late_ms)

    def execute_rows(
        self,
        session: SqlServerSession,
        name: str,
        same: Mapping[str, object],
        rows: Sequence[Values],
    ) -> None:
        """One after the other; with one preparation, unless they have bodies, whose lengths have to
        be declared.
        """
        if rows and "body" in rows[0]:
            for row in rows:
                session.execute(name, **same, **row)
        else:
            session.execute_many(name, [{**same, **row} for row in rows])

    def not_removed(self, text: str, advice: str) -> StoreError:
        """Or somebody took them who heeds no locks, as on servers that have no such hints."""
        return TransactionLostError(text, advice=advice)

    # Tables.

    def check_session(
        self, session: SqlServerSession, setting: str, location: Location | None = None
    ) -> None:
        check_session(session, setting)

    def found(
        self, session: SqlServerSession, table: SqlServerTable, rights: Sequence[str] = ()
    ) -> FoundTable | None:
        found = find_table(session, table)
        if found is None or not rights:
            return found
        return replace(found, missing_rights=missing_rights(session, table, rights))

    def similar_tables(self, session: SqlServerSession, table: SqlServerTable) -> Sequence[str]:
        return similar_tables(session, table)

    def due_index(self, kind: TableKind, delayed: SqlServerTable) -> WantedIndex:
        return WantedIndex(
            kind.due,
            "every look for what is due reads the whole table, and a claim locks more of it",
            f"CREATE NONCLUSTERED INDEX {bracket_name(kind.index)} ON {delayed.sql} "
            f"({kind.names['due']})",
        )

    def index_creation(self, kind: TableKind, delayed: SqlServerTable) -> Sequence[str]:
        columns = {"due": kind.names["due"], "index": bracket_name(kind.index)}
        return [creation("create_due_index", columns, delayed=delayed)]

    def create_index(
        self, session: SqlServerSession, location: Location, delayed: SqlServerTable
    ) -> Iterator[IndexCreated | Problem]:
        if location.kind.create is None:
            return
        missing = delayed_index_notices(session, location, delayed)
        if not missing:
            return
        seconds = location.timeouts.plan_seconds(self.estimate_rows(session, delayed))
        try:
            with session.wait_longer(seconds):
                for text in self.index_creation(location.kind, delayed):
                    session.script(text)
        except StoreError as error:
            if error.transient:
                raise
            (lacking,) = missing
            yield Problem(
                f"{lacking.text}. It cannot be created: {error.text}",
                f"have the table's owner {lacking.advice}",
            )
        else:
            yield IndexCreated(location.kind.index, delayed.sql)

    def creation(self, name: str, /, **tables: SqlServerTable) -> str:
        return creation(name, {"format": FORMAT_MARK}, **tables)

    def script(self, dsn: str, creations: Iterable[Sequence[str]]) -> str:
        return script(database_of(dsn), [text for texts in creations for text in texts])

    def has_columns(
        self, session: SqlServerSession, table: SqlServerTable, columns: Collection[str]
    ) -> bool | None:
        if not is_there(session, table):
            return None
        found = find_table(session, table) if columns else None
        return not columns or (found is not None and set(found.columns).issuperset(columns))

    def create(
        self,
        session: Session,
        new: Sequence[SqlServerTable],
        scripts: Sequence[tuple[Sequence[SqlServerTable], Sequence[str]]],
    ) -> None:
        for tables, texts in scripts:
            try:
                for text in texts:
                    session.script(text)
            except StoreError as error:
                if error.transient:
                    raise
                raise ConfigError(
                    f"{', '.join(table.sql for table in tables)} cannot be created or altered: "
                    f"{error}",
                    advice=(
                        "grant CREATE TABLE and VIEW DEFINITION, and ALTER on the schema, or have "
                        "an administrator run what `setup --print-sql` prints"
                    ),
                ) from error

    def grants(
        self,
        role: str,
        rights: Mapping[SqlServerTable, Sequence[str]],
        queues: Sequence[SqlServerTable],
    ) -> str:
        """In batches."""
        lines = []
        for catalog in sorted({table.catalog for table in rights}):
            # GRANT takes no table of another database.
            lines += ["GO", f"USE {bracket_name(catalog)};"]
            lines += [
                f"GRANT {', '.join(rights[table])} ON {bracket_name(table.schema)}."
                f"{bracket_name(table.table)} TO {bracket_name(role)};"
                for table in rights
                if table.catalog == catalog
            ]
        return "\n".join(lines)


SQL_SERVER = SqlServer()


def find_delayed(session: Session, location: Location) -> SqlServerTable:
    """The only candidate, or the one that exists.

    Raises `ConfigError` if two exist, because each may hold messages.
    """
    candidates: Sequence[SqlServerTable] = location.candidates
    if len(candidates) == 1:
        return candidates[0]
    found = [table for table in candidates if is_there(session, table)]
    if len(found) > 1:
        raise ConfigError(
            f"There are both {found[0].sql} and {found[1].sql}",
            advice=(
                "set store.delayed_table to the one that the endpoint stores its delayed "
                "messages in"
            ),
        )
    return found[0] if found else candidates[0]


def batches_lock(sweep_id: UUID) -> str:
    """The lock that a sweep's batches share, and that closing the sweep takes alone."""
    return f"{sweep_lock(sweep_id)}/batches"
