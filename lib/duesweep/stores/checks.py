"""What is expected of a store's tables, and whether a sweep can work with what is there."""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from duesweep.checks.server import ClockReading
from duesweep.checks.tables import (
    Difference,
    FoundTable,
    WantedIndex,
    WantedTable,
    column_names,
    compare,
    index_notices,
    newer_format,
)
from duesweep.core.errors import ConfigError, Problem
from duesweep.core.world import World
from duesweep.drivers.statements import Session, journal_columns
from duesweep.stores.dialect import Dialect, Location, journal_tables
from duesweep.stores.kinds import TableKind

_JOURNAL_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
# A database administrator may have created the tables with the other type of text.
_ALIKE = {"text": frozenset({"text", "character varying"})}
# A session may lock only rows that it may change.
_DELAYED_RIGHTS = ("SELECT", "UPDATE", "DELETE")
_READINGS = 3


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
    of another shape, or closed to this user.
    """
    tables = location.dialect.tables
    tables.check_session(session, "store.dsn", location)
    for table, wanted in wanted_tables(location, delayed):
        found = tables.find(session, table, wanted.rights)
        refuse_wrong_table(wanted, found, partial(tables.similar, session, table))


def index_notices_of(session: Session, location: Location, delayed: Any) -> Sequence[Problem]:
    """What is missing of the delayed table's indexes: without them a sweep works, but slowly."""
    tables = location.dialect.tables
    found = tables.find(session, delayed, ())
    if found is None:
        return ()
    wanted = dict(wanted_tables(location, delayed))[delayed]
    return index_notices(wanted, tables.with_indexes(session, delayed, found))


def refuse_wrong_table(
    wanted: WantedTable, found: FoundTable | None, others: Callable[[], Sequence[str]] = tuple
) -> None:
    """Raise `ConfigError` for the first difference with which no sweep can work. A missing index
    only makes it slow. `others` returns the tables that may be meant if this one is missing.
    """
    if found is None:
        near = [] if wanted.is_journal else _nearest(wanted.name, others())
        hint = f"did you mean {' or '.join(near)}? If not, " if near else ""
        raise ConfigError(f"There is no {wanted.role} {wanted.name}", advice=hint + wanted.create)
    if wanted.is_journal:
        refuse_newer_format(wanted.name, found)
    difference = compare(wanted, found)
    if not difference.has_own_rows:
        raise ConfigError(
            f"{wanted.name} cannot be the {wanted.role}: it is a view, a foreign table or the "
            "like, whose rows cannot be locked",
            advice="set the database, schema and table that hold the rows",
        )
    if difference.wrong_columns:
        what = _describe(wanted, difference)
        raise ConfigError(
            f"{wanted.name} is not the {wanted.role} that is expected: {what}",
            advice=wanted.reshape,
        )
    if difference.missing_rights:
        raise ConfigError(
            f"The sweeper's user lacks {', '.join(difference.missing_rights)} on {wanted.name}",
            advice="grant them; the command `doctor` prints the statements",
        )


def refuse_newer_format(name: str, found: FoundTable | None) -> None:
    """Raise `ConfigError` if one of duesweep's own tables is newer than this version knows."""
    problem = None if found is None else newer_format(name, found)
    if problem is not None:
        raise ConfigError.of([problem])


def _nearest(name: str, others: Sequence[str]) -> Sequence[str]:
    """Up to three of the other tables, the most similar first."""
    return difflib.get_close_matches(name, others, n=3)


def _describe(wanted: WantedTable, difference: Difference) -> str:
    missing = [name for name, found in difference.wrong_columns.items() if found is None]
    others = [
        f"{name} is {found}, not {' or '.join(sorted(wanted.columns[name]))}"
        for name, found in sorted(difference.wrong_columns.items())
        if found is not None
    ]
    lacks = [f"it lacks {column_names(wanted.columns, missing)}"] if missing else []
    return ", ".join([*lacks, *others])


def read_clock(server_time: Callable[[], datetime]) -> Sequence[ClockReading]:
    """Ask for the server's time a few times; the fastest answer is the most exact."""
    readings, clock = [], World().clock
    for _ in range(_READINGS):
        before = clock.now()
        server = server_time()
        readings.append(ClockReading(server, before, clock.now()))
    return readings
