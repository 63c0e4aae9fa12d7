"""The expected and the actual table, and the findings on the difference. The doctor
shows all; a sweep is refused by the first that stops it.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from duesweep.core.account import unknown_format
from duesweep.core.errors import ConfigError, Problem
from duesweep.core.finding import (
    NOT_SET_UP,
    Check,
    Finding,
    Severity,
    clock_skew,
    fault,
    fault_of,
    notices,
    ok,
    reachable,
    read_clock,
    refuse,
    stop,
    warning,
)
from duesweep.core.policy import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.statements import (
    Columns,
    FoundTable,
    HiddenRows,
    Session,
    journal_columns,
    journal_keys,
)
from duesweep.stores.dialect import Dialect, Location, Tables, WantedIndex, journal_tables
from duesweep.stores.kinds import destinations
from duesweep.stores.summary import aware

POSTGRESQL_QUEUE_RIGHTS: Sequence[str] = ("INSERT",)
# SELECT to count the arrived rows: a trigger may drop rows without an error.
SQL_SERVER_QUEUE_RIGHTS: Sequence[str] = ("SELECT", "INSERT")
# Types of text that hold the characters of one code page only.
_NARROW = {"varchar", "char", "text"}
# One letter that is wrong, missing or elsewhere; not in shorter names, and not in codes.
_ERRORS, _LEAST_LETTERS, _CODE_LETTERS = 1.3, 5, 3
_PUNCTUATION = re.compile(r"[\W_]+")
_JOURNAL_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
# A database administrator may have created the tables with the other type of text.
_ALIKE = {"text": frozenset({"text", "character varying"})}
# A session may lock only rows that it may change.
_DELAYED_RIGHTS = ("SELECT", "UPDATE", "DELETE")
_READING_RIGHTS = ("SELECT",)
_OF_READERS = {Check.TABLE_EXISTS, Check.TABLE_SHAPE, Check.ROW_SECURITY}


@dataclass(frozen=True, slots=True)
class WantedTable:
    """The expected `table` of the server's own type.

    `create` and `reshape` are advice: what to do if the table is missing, or if its columns differ.
    `unicode` names the column whose text has to hold all characters. `is_journal`: it is one of
    duesweep's own tables, which `setup` creates together. `key`: the columns of its primary key.
    """

    role: str
    table: Any
    columns: Columns
    rights: Sequence[str]
    create: str
    reshape: str = (
        "check store.kind, store.schema and store.delayed_table, since this may be another table; "
        "if it is not, give it the columns that the transport gives it"
    )
    indexes: Sequence[WantedIndex] = ()
    unicode: str | None = None
    is_journal: bool = False
    key: str | None = None

    @property
    def name(self) -> str:
        """The table's name as statements have it."""
        return str(self.table.sql)


# Columns of the table of bindings that `setup` adds to a journal of an earlier version.
AGE_COLUMNS = ("journal_id", "settled_sweep", "settled_at", "place")


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
        key=kind.names.get("id"),
    )
    return [wanted, *wanted_journals(location.dialect, delayed)]


def wanted_journals(dialect: Dialect, beside: Any) -> Sequence[WantedTable]:
    """duesweep's own tables next to a delayed table."""
    columns, keys = journal_columns(dialect.statements), journal_keys(dialect.statements)
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
            key=keys.get(name),
        )
        for name, table in journal_tables(beside).items()
    ]


def examine(
    dialect: Dialect,
    dsn: str,
    setting: str,
    queues: Callable[[], Sequence[WantedTable]],
    *,
    queue_columns: Columns,
    store: Location | None = None,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> Iterator[Finding]:
    """Findings on a database, and on the queue tables that are expected there. Any table with
    `queue_columns` is a queue table. `store` is None if no messages wait there. Raises
    `ConfigError` and `StoreError` if no session can be opened.
    """
    tables = dialect.tables
    with dialect.connect(dsn, timeouts.task) as session:
        readings = read_clock(lambda: aware(session.row("doctor_clock").now))
        yield reachable(setting, readings)
        yield from tables.check_session(session, setting, store)
        yield clock_skew(setting, readings)
        delayed, wanted = None, list[WantedTable]()
        if store is not None:
            try:
                delayed = store.find_delayed(session)
                wanted += wanted_tables(store, delayed)
            except ConfigError as error:
                yield fault_of(Check.ONE_DELAYED_TABLE, setting, error.problem)
                # All candidates are in the same schema, and so is the journal.
                wanted += wanted_journals(dialect, store.delayed)
        wanted += queues()
        there = tables.find(session, {one.table: one.rights for one in wanted})
        found = {table: tables.with_indexes(session, table, one) for table, one in there.items()}
        examined = [(one, found.get(one.table)) for one in wanted]
        yield from all_table_findings(setting, examined, partial(tables.similar, session))
        if store is not None and delayed in found:
            yield from empty_beside_full(session, store, delayed)
        for one, there_is in examined:
            if there_is is not None and there_is.hooks:
                yield from tables.try_hooks(session, store, one, there_is)
        yield from tables.more_findings(session, setting, store, queue_columns)


# A table as it is expected and as it was found; None if this user sees no such table.
ExaminedTable = tuple[WantedTable, FoundTable | None]


def all_table_findings(
    setting: str, tables: Sequence[ExaminedTable], similar: Callable[[Any], Iterable[Any]]
) -> Iterator[Finding]:
    """Findings on all tables of a database; `similar` returns the tables that may be meant by one.
    If `setup` has not run, one finding says so.
    """
    journal = [(wanted, found) for wanted, found in tables if wanted.is_journal]
    is_set_up = not journal or any(found for _, found in journal)
    if journal and is_set_up:
        yield ok(Check.SETUP, setting, "The command `setup` has run")
    elif journal:
        names = ", ".join(wanted.name for wanted, _ in journal)
        text = f"duesweep's own tables do not exist, or this user has no rights on them: {names}"
        yield fault(Check.SETUP, setting, f"{NOT_SET_UP}: {text}", "Run the command `setup` once")
    for wanted, found in tables:
        if is_set_up or not wanted.is_journal:
            yield from table_findings(wanted, found, others=partial(similar, wanted.table))


def table_findings(
    wanted: WantedTable,
    found: FoundTable | None,
    *,
    others: Callable[[], Iterable[Any]] = tuple,
) -> Iterator[Finding]:
    """Findings on one table. `others` are tables that may be meant if this one is missing."""
    if found is None:
        yield _missing(wanted, others)
        return
    yield ok(Check.TABLE_EXISTS, wanted.name, "It exists")
    yield from _shapes(wanted, found)
    if found.is_unlogged:
        yield _unlogged(wanted)
    if wanted.is_journal and "ledger_id" in wanted.columns:
        yield _age(wanted, found)
    yield _rights(wanted, found)
    if found.hidden is not None:
        yield _row_security(wanted.name, found.hidden)
    yield from _identity(wanted, found)
    if wanted.is_journal and found.hooks:
        text = f"It has {_listed(found.hooks)}, which could drop rows"
        yield warning(Check.TABLE_TRIGGERS, wanted.name, text, "Drop it, unless it keeps all rows")
    for index in wanted.indexes:
        # If the column itself is missing, the finding on the columns says so.
        if index.column in found.columns:
            yield _index(wanted, found, index)
    if wanted.unicode in found.columns:
        yield _unicode(wanted, found, str(wanted.unicode))


def check_tables(session: Session, location: Location, delayed: Any) -> None:
    """Raise `ConfigError` for a session that cannot sweep, or for the first table that is missing,
    of another shape, or without rights for this user. A missing index only makes sweeps slow.
    """
    refuse(_stopping(session, location, delayed))


def _stopping(session: Session, location: Location, delayed: Any) -> Iterator[Finding]:
    tables = location.dialect.tables
    yield from tables.check_session(session, "store.dsn", location)
    for wanted, found, findings in _examined(session, tables, wanted_tables(location, delayed)):
        yield from findings
        if found is not None and found.hooks:
            yield from tables.try_hooks(session, location, wanted, found)


def _examined(
    session: Session, tables: Tables, all_wanted: Sequence[WantedTable]
) -> Iterator[tuple[WantedTable, FoundTable | None, Iterator[Finding]]]:
    """Each table as it was found, without its indexes, and the findings on it."""
    there = tables.find(session, {wanted.table: wanted.rights for wanted in all_wanted})
    for wanted in all_wanted:
        found, others = there.get(wanted.table), partial(tables.similar, session, wanted.table)
        yield wanted, found, table_findings(wanted, found, others=others)


def check_reading(session: Session, location: Location, delayed: Any) -> None:
    """Raise `ConfigError` for the first table that is missing, of another shape or with hidden
    rows, and for the ones that this user may not read. Who only reads needs no other right.
    """
    tables, unread = location.dialect.tables, list[str]()
    to_read = [replace(one, rights=_READING_RIGHTS) for one in wanted_tables(location, delayed)]
    for wanted, found, findings in _examined(session, tables, to_read):
        refuse(each for each in findings if each.check in _OF_READERS)
        if found is not None and found.missing_rights:
            unread.append(wanted.name)
    if unread:
        raise ConfigError(
            f"This user lacks SELECT on {', '.join(unread)}",
            advice="grant it; this command needs no other right on them",
        )


def refuse_other_tables(session: Session, tables: Tables, wanted: Sequence[WantedTable]) -> None:
    """Raise `ConfigError` for the first of these tables that is there with another shape."""
    there = tables.find(session, {each.table: () for each in wanted})
    for each in wanted:
        if (found := there.get(each.table)) is not None:
            refuse(_shapes(each, found))


def refuse_hidden_rows(session: Session, location: Location, delayed: Any) -> None:
    """Raise `ConfigError` if row-level security hides rows of the store from this user."""
    tables = [delayed, *journal_tables(delayed).values()]
    for hidden in location.dialect.tables.hidden_rows(session, tables):
        raise ConfigError(hidden.problem.text, advice=hidden.problem.advice)


def misspelt(session: Session, location: Location, delayed: Any) -> Problem | None:
    """That the delayed table is missing, and one with almost the same name is there, in its schema:
    the other one may be meant.
    """
    tables = location.dialect.tables
    if location.kind.create is None or delayed in tables.columns(session, [delayed]):
        return None
    near = [each.sql for each in tables.similar(session, delayed) if is_near(delayed, each)]
    if not near:
        return None
    return Problem(
        f"There is no delayed table {delayed.sql}, but {' and '.join(near)}",
        f"correct {location.kind.settings.replace(' and ', ' or ')}; or, if this is another "
        "endpoint, add --new-endpoint",
    )


def is_near(table: Any, other: Any) -> bool:
    """Whether one of two delayed tables in a schema may be meant by the other's name: they are the
    same in other case or punctuation, or but for one letter. Numbers and short parts of a name,
    such as EU and US, are no mistakes.
    """
    if table.schema != other.schema or table == other:
        return False
    parts, others = (_PUNCTUATION.split(_endpoint_of(each).casefold()) for each in (table, other))
    one, two = "".join(parts), "".join(others)
    if one == two:
        return True
    longest = max(len(one), len(two))
    ratio = difflib.SequenceMatcher(None, one, two, autojunk=False).ratio()
    same_codes = [*filter(_is_code, parts)] == [*filter(_is_code, others)]
    return longest >= _LEAST_LETTERS and same_codes and ratio >= 1 - _ERRORS / longest


def _endpoint_of(delayed: Any) -> str:
    name: str = delayed.table
    return name.rpartition(".")[0] or name


def _is_code(part: str) -> bool:
    return len(part) <= _CODE_LETTERS or any(map(str.isdecimal, part))


def empty_beside_full(session: Session, location: Location, delayed: Any) -> Iterator[Finding]:
    """A warning of an empty delayed table if one with almost the same name has messages."""
    tables = location.dialect.tables
    near = [each for each in tables.similar(session, delayed) if is_near(delayed, each)]
    full = [each for each in near if tables.estimate_rows(session, each)]
    if full and not session.named(location.names(delayed)).rows("doctor_waiting", most=1):
        text = f"It is empty, while {full[0].sql} has messages: that one may be the endpoint's"
        advice = f"Correct {location.kind.settings.replace(' and ', ' or ')} if it is"
        yield warning(Check.TABLE_EXISTS, delayed.sql, text, advice)


def _newer_format(name: str, found: FoundTable) -> Sequence[Finding]:
    """The finding on one of duesweep's own tables that is newer than this version knows."""
    problem = unknown_format(f"The journal's table {name}", found.mark)
    return () if problem is None else [stop(Check.TABLE_SHAPE, name, problem)]


def wrong_columns(wanted: Columns, found: Mapping[str, str]) -> dict[str, str | None]:
    """The expected columns that are missing or have another type, with the type that was found."""
    return {
        name: found.get(name)
        for name, types in wanted.items()
        if name not in found or (types and found[name] not in types)
    }


def column_names(wanted: Columns, names: Iterable[str]) -> str:
    """Columns with their expected types, for people."""
    return ", ".join(
        f"{name} {' or '.join(sorted(wanted[name]))}".rstrip() for name in sorted(names)
    )


def _missing(wanted: WantedTable, others: Callable[[], Iterable[Any]]) -> Finding:
    # Names of duesweep's own tables are never mistaken.
    names = [] if wanted.is_journal else [other.sql for other in others()]
    near = difflib.get_close_matches(wanted.name, names, n=3)
    hint = f"did you mean {' or '.join(near)}? If not, " if near else ""
    refusal = Problem(f"There is no {wanted.role} {wanted.name}", hint + wanted.create)
    text = f"The {wanted.role} does not exist, or this user has no rights on it"
    return stop(Check.TABLE_EXISTS, wanted.name, refusal, found=text)


def _shapes(wanted: WantedTable, found: FoundTable) -> Sequence[Finding]:
    """The finding on its shape. A newer format is no fault of the table."""
    newer = _newer_format(wanted.name, found) if wanted.is_journal else ()
    return newer or [_shape(wanted, found)]


def _shape(wanted: WantedTable, found: FoundTable) -> Finding:
    check, name = Check.TABLE_SHAPE, wanted.name
    if not found.is_table:
        what = (
            f"cannot be the {wanted.role}: it is a view, a foreign table or the like, whose rows "
            "cannot be locked"
        )
        refusal = Problem(f"{name} {what}", "set the database, schema and table that hold the rows")
        return stop(check, name, refusal, found=f"It {what}")
    wrong = wrong_columns(wanted.columns, found.columns)
    if wrong.get(wanted.unicode or "") in _NARROW:
        # The finding on its characters says so.
        del wrong[str(wanted.unicode)]
    if not wrong:
        return ok(check, name, "Its columns are as expected")
    what = _differs(wanted, wrong)
    return stop(check, name, Problem(f"{name} {what}", wanted.reshape), found=f"It {what}")


def _differs(wanted: WantedTable, wrong: Mapping[str, str | None]) -> str:
    missing = [name for name, found in wrong.items() if found is None]
    others = [
        f"{name} is {found}, not {' or '.join(sorted(wanted.columns[name]))}"
        for name, found in sorted(wrong.items())
        if found is not None
    ]
    lacks = [f"it lacks {column_names(wanted.columns, missing)}"] if missing else []
    return f"is not the {wanted.role} that is expected: {', '.join([*lacks, *others])}"


def _rights(wanted: WantedTable, found: FoundTable) -> Finding:
    check, name, lacking = Check.TABLE_RIGHTS, wanted.name, ", ".join(found.missing_rights)
    if not lacking:
        return ok(check, name, f"This user has {', '.join(wanted.rights)}")
    refusal = Problem(
        f"The sweeper's user lacks {lacking} on {name}",
        f"run {'; '.join(found.grants)}; `doctor --print-sql` prints all statements",
    )
    return replace(
        stop(check, name, refusal, found=f"This user lacks {lacking}"),
        advice="; ".join(found.grants),
        statements=found.grants,
        only_reads=set(wanted.rights) - set(_READING_RIGHTS) <= set(found.missing_rights),
    )


def _row_security(name: str, hidden: HiddenRows) -> Finding:
    """A table whose rows this user does not see, or may not write: a store could look empty."""
    found = stop(Check.ROW_SECURITY, name, hidden.problem)
    return replace(found, statements=hidden.statements[:1])


def _identity(wanted: WantedTable, found: FoundTable) -> Iterator[Finding]:
    """A published table whose rows have no identity takes no changes. One that is not published is
    slow without a key; duesweep's own tables need theirs.
    """
    name, add_key = wanted.name, f"ALTER TABLE {wanted.name} ADD PRIMARY KEY ({wanted.key})"
    if found.unidentified is not None:
        text = (
            f"{found.unidentified} is in a publication and has no replica identity, so the server "
            "refuses to change and to delete its rows"
        )
        identity = f"ALTER TABLE {found.unidentified} REPLICA IDENTITY DEFAULT"
        statement = identity if found.has_primary_key else add_key
        refused = stop(Check.REPLICA_IDENTITY, name, Problem(text, f"run {statement}"))
        yield replace(refused, statements=[statement])
    elif not found.has_key and wanted.is_journal:
        text = f"{name} has no primary key: its rows could be there twice"
        refused = stop(Check.TABLE_INDEX, name, Problem(text, f"run {add_key}"))
        yield replace(refused, statements=[add_key])
    elif not found.has_key and wanted.key is not None:
        text = "It has no primary key: to find messages by their keys reads the whole table"
        yield warning(Check.TABLE_INDEX, name, text, add_key, statements=[add_key])


def dropping(wanted: WantedTable, found: FoundTable, what: str) -> Finding:
    """A table on which a trigger or a rule drops the rows of a statement, without an error."""
    text = f"{wanted.name} {what}, and the server raises no error: {_listed(found.hooks)} drops it"
    advice = "let it return the row, or drop it"
    return stop(Check.TABLE_TRIGGERS, wanted.name, Problem(text, advice))


def refusing(wanted: WantedTable, found: FoundTable, why: str) -> Finding:
    """A table on which the server refuses a statement of a sweep that a trigger or a rule sees."""
    text = f"A sweep's statement on {wanted.name} fails: {why}. It has {_listed(found.hooks)}"
    advice = "let that accept and return the row, or drop it"
    return stop(Check.TABLE_TRIGGERS, wanted.name, Problem(text, advice))


def _listed(hooks: Sequence[str]) -> str:
    return " and ".join(hooks)


def _age(wanted: WantedTable, found: FoundTable) -> Finding:
    if set(AGE_COLUMNS) <= set(found.columns):
        return ok(Check.SETUP, wanted.name, "It keeps how far the ledger was")
    text = "An earlier version created it: an older copy of ledger or database is not recognised"
    return warning(Check.SETUP, wanted.name, text, "Run the command `setup`")


def _unlogged(wanted: WantedTable) -> Finding:
    statement = f"ALTER TABLE {wanted.name} SET LOGGED"
    text = "It is unlogged: a crash of its server empties it"
    return warning(Check.DURABILITY, wanted.name, text, statement, statements=[statement])


def _index(wanted: WantedTable, found: FoundTable, index: WantedIndex) -> Finding:
    usable = found.indexed | (found.indexed_in_part if index.partial else frozenset())
    if index.column in usable:
        return ok(Check.TABLE_INDEX, wanted.name, f"An index begins with {index.column}")
    text = f"No index that can be used begins with {index.column}: {index.harm}"
    return warning(
        Check.TABLE_INDEX, wanted.name, text, index.statement, statements=[index.statement]
    )


def _unicode(wanted: WantedTable, found: FoundTable, column: str) -> Finding:
    kind, refusal = found.columns[column], None
    more = " if endpoints send them, while sweeps write them as escapes"
    if kind not in _NARROW:
        return ok(Check.HEADERS_UNICODE, wanted.name, f"{column} is {kind}")
    if kind not in wanted.columns[column]:
        text = f"{wanted.name} {_differs(wanted, {column: kind})}"
        refusal, more = Problem(text, wanted.reshape), "; a sweep refuses it"
    alter = f"ALTER TABLE {wanted.name} ALTER COLUMN {column} nvarchar(max) NOT NULL"
    when = "while its endpoint is stopped"
    return Finding(
        Check.HEADERS_UNICODE,
        Severity.WARNING if refusal is None else Severity.FAULT,
        wanted.name,
        f"{column} is {kind}, so characters outside its code page become question marks{more}",
        f"{alter}, {when}",
        [f"-- Only {when}:\n{alter}"],
        refusal=refusal,
    )


def missing_index(session: Session, location: Location, delayed: Any) -> Problem | None:
    """The index on Due, if the delayed table is there and lacks it: sweeps work, but slowly."""
    tables, wanted = location.dialect.tables, wanted_tables(location, delayed)[0]
    found = tables.find(session, {delayed: ()}).get(delayed)
    if found is None:
        return None
    indexed = tables.with_indexes(session, delayed, found)
    return next(notices(_index(wanted, indexed, index) for index in wanted.indexes), None)


def waiting_destinations(location: Location, most: int) -> Sequence[str]:
    """The destinations of the messages that are due first, at most `most` messages; without the
    endpoint's own queue and unreadable addresses. Raises `ConfigError` and `StoreError` as a sweep
    does.
    """
    with location.dialect.connect(location.dsn, location.timeouts.task) as session:
        delayed = location.find_delayed(session)
        statements = session.named(location.names(delayed))
        return destinations(statements.rows("doctor_waiting", most=most))
