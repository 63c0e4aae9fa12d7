"""What is expected of a store's tables, and whether a sweep can work with what is there."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from duesweep.core.errors import Problem
from duesweep.core.finding import Finding, refuse
from duesweep.drivers.statements import Session, journal_columns
from duesweep.stores.dialect import Dialect, Location, journal_tables
from duesweep.stores.kinds import TableKind, destinations
from duesweep.stores.tables import WantedIndex, WantedTable, index_notices, table_findings

_JOURNAL_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
# A database administrator may have created the tables with the other type of text.
_ALIKE = {"text": frozenset({"text", "character varying"})}
# A session may lock only rows that it may change.
_DELAYED_RIGHTS = ("SELECT", "UPDATE", "DELETE")


def _wanted_journal(name: str, columns: Mapping[str, str]) -> WantedTable:
    """One of duesweep's own tables."""
    return WantedTable(
        role="journal table",
        name=name,
        columns={column: _ALIKE.get(kind, frozenset({kind})) for column, kind in columns.items()},
        rights=_JOURNAL_RIGHTS,
        create="run the command `setup` once",
        reshape=(
            "another version of duesweep created it: let that version settle its sweeps, drop the "
            "tables duesweep_…, and run the command `setup`"
        ),
        is_journal=True,
    )


def _wanted_delayed(
    name: str, kind: TableKind, index: WantedIndex, unicode: str | None = None
) -> WantedTable:
    """A delayed table of a kind, with its index on Due."""
    return WantedTable(
        role="delayed table",
        name=name,
        columns={column: frozenset({of_type}) for column, of_type in kind.columns.items()},
        rights=_DELAYED_RIGHTS,
        create=kind.advice,
        indexes=(index,),
        unicode=unicode,
    )


def wanted_tables(location: Location, delayed: Any) -> Iterator[tuple[Any, WantedTable]]:
    """The delayed table and the journal's."""
    kind = location.kind
    # The headers of the MSMQ transport are bytes.
    unicode = "Headers" if kind.columns.get("Headers") == "nvarchar" else None
    index = location.dialect.tables.due_index(kind, delayed)
    yield delayed, _wanted_delayed(delayed.sql, kind, index, unicode)
    yield from wanted_journals(location.dialect, delayed)


def wanted_journals(dialect: Dialect, beside: Any) -> Iterator[tuple[Any, WantedTable]]:
    """duesweep's own tables beside a delayed table."""
    columns = journal_columns(dialect.statements)
    for name, table in journal_tables(beside).items():
        yield table, _wanted_journal(table.sql, columns[name])


def check_tables(session: Session, location: Location, delayed: Any) -> None:
    """Raise `ConfigError` for a session that cannot sweep, or for the first table that is missing,
    of another shape, or closed to this user. A missing index only makes sweeps slow.
    """
    refuse(_stopping(session, location, delayed))


def _stopping(session: Session, location: Location, delayed: Any) -> Iterator[Finding]:
    tables = location.dialect.tables
    yield from tables.check_session(session, "store.dsn", location)
    for table, wanted in wanted_tables(location, delayed):
        found = tables.find(session, table, wanted.rights)
        yield from table_findings(wanted, found, others=partial(tables.similar, session, table))


def index_notices_of(session: Session, location: Location, delayed: Any) -> Sequence[Problem]:
    """What is missing of the delayed table's indexes: without them a sweep works, but slowly."""
    tables = location.dialect.tables
    found = tables.find(session, delayed, ())
    if found is None:
        return ()
    wanted = dict(wanted_tables(location, delayed))[delayed]
    return index_notices(wanted, tables.with_indexes(session, delayed, found))


def waiting_destinations(location: Location, most: int) -> Sequence[str]:
    """The destinations of the messages that are due first, at most `most` messages; without the
    endpoint's own queue and what cannot be read. Raises `ConfigError` and `StoreError` as a sweep
    does.
    """
    with location.dialect.connect(location.dsn, location.timeouts.task) as session:
        delayed = location.find_delayed(session)
        statements = session.named(location.names(delayed))
        return destinations(statements.rows("doctor_waiting", most=most))
