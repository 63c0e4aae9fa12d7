"""What is expected of a store's tables, and whether a sweep can work with what is there."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from duesweep.core.errors import Problem
from duesweep.core.finding import Finding, refuse
from duesweep.drivers.statements import Session, journal_columns
from duesweep.stores.dialect import Dialect, Location, journal_tables
from duesweep.stores.kinds import destinations
from duesweep.stores.tables import WantedTable, has_index, table_findings

_JOURNAL_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
# A database administrator may have created the tables with the other type of text.
_ALIKE = {"text": frozenset({"text", "character varying"})}
# A session may lock only rows that it may change.
_DELAYED_RIGHTS = ("SELECT", "UPDATE", "DELETE")


def wanted_tables(location: Location, delayed: Any) -> Sequence[WantedTable]:
    """The delayed table, with its index on Due, and the journal's."""
    kind = location.kind
    wanted = WantedTable(
        role="delayed table",
        table=delayed,
        columns={column: frozenset({of_type}) for column, of_type in kind.columns.items()},
        rights=_DELAYED_RIGHTS,
        create=kind.advice,
        indexes=(location.dialect.tables.due_index(kind, delayed),),
        # The headers of the MSMQ transport are bytes.
        unicode="Headers" if kind.columns.get("Headers") == "nvarchar" else None,
    )
    return [wanted, *wanted_journals(location.dialect, delayed)]


def wanted_journals(dialect: Dialect, beside: Any) -> Sequence[WantedTable]:
    """duesweep's own tables beside a delayed table."""
    columns = journal_columns(dialect.statements)
    return [
        WantedTable(
            role="journal table",
            table=table,
            columns={c: _ALIKE.get(kind, frozenset({kind})) for c, kind in columns[name].items()},
            rights=_JOURNAL_RIGHTS,
            create="run the command `setup` once",
            reshape=(
                "another version of duesweep created it: let that version settle its sweeps, drop "
                "the tables duesweep_…, and run the command `setup`"
            ),
            is_journal=True,
        )
        for name, table in journal_tables(beside).items()
    ]


def check_tables(session: Session, location: Location, delayed: Any) -> None:
    """Raise `ConfigError` for a session that cannot sweep, or for the first table that is missing,
    of another shape, or closed to this user. A missing index only makes sweeps slow.
    """
    refuse(_stopping(session, location, delayed))


def _stopping(session: Session, location: Location, delayed: Any) -> Iterator[Finding]:
    tables = location.dialect.tables
    yield from tables.check_session(session, "store.dsn", location)
    for wanted in wanted_tables(location, delayed):
        found = tables.find(session, wanted.table, wanted.rights)
        others = partial(tables.similar, session, wanted.table)
        yield from table_findings(wanted, found, others=others)


def missing_index(session: Session, location: Location, delayed: Any) -> Problem | None:
    """The index on Due, if the delayed table is there and lacks it: sweeps work, but slowly."""
    tables = location.dialect.tables
    found, index = tables.find(session, delayed, ()), tables.due_index(location.kind, delayed)
    if found is None or has_index(tables.with_indexes(session, delayed, found), index):
        return None
    return Problem(
        f"No index of {delayed.sql} that can be used begins with {index.column}: {index.harm}",
        f"run {index.statement}",
    )


def waiting_destinations(location: Location, most: int) -> Sequence[str]:
    """The destinations of the messages that are due first, at most `most` messages; without the
    endpoint's own queue and what cannot be read. Raises `ConfigError` and `StoreError` as a sweep
    does.
    """
    with location.dialect.connect(location.dsn, location.timeouts.task) as session:
        delayed = location.find_delayed(session)
        statements = session.named(location.names(delayed))
        return destinations(statements.rows("doctor_waiting", most=most))
