"""The tables that a sweep needs, and all checks of a database and its tables. The doctor shows all
findings; a sweep is refused by the first that stops it.
"""

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from duesweep.core import logs
from duesweep.core.account import Account, SliceEnd, end_as_values
from duesweep.core.errors import ConfigError, Problem, RefusedMessageError, StoreError
from duesweep.core.finding import (
    NOT_SET_UP,
    Check,
    Finding,
    Severity,
    fault,
    fault_of,
    notices,
    ok,
    refuse,
    skipped,
    warning,
)
from duesweep.core.format import JOURNAL_FORMAT, unknown_format
from duesweep.core.policy import DEFAULT_TIMEOUTS, Timeouts
from duesweep.core.world import World
from duesweep.drivers.statements import (
    Columns,
    FoundTable,
    Session,
    UndoneError,
    own_tables,
)
from duesweep.stores.dialect import (
    Dialect,
    Indexed,
    Location,
    Tables,
    WantedIndex,
    WantedTable,
    journal_tables,
)
from duesweep.stores.forward import destinations
from duesweep.stores.summary import aware

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
# A view would run its owner's functions with this user's rights, and row-level security hides rows.
_OF_SIGHT = {Check.TABLE_SHAPE, Check.ROW_SECURITY}
_OF_READERS = {Check.TABLE_EXISTS, *_OF_SIGHT}
_RESHAPE = (
    "check store.kind, store.schema and store.delayed_table, since this may be another table; if "
    "it is not, give it the columns that the transport gives it"
)
_SKEW = timedelta(seconds=5)
# The end of a slice of no sweep.
_NO_SLICE = {"sweep_id": UUID(int=0), "slice": 0, **end_as_values(SliceEnd(Account(), None))}
# Columns of the table of bindings that a journal of the first format may lack.
AGE_COLUMNS = ("journal_id", "settled_sweep", "settled_at", "place")


def wanted_tables(location: Location, delayed: Any) -> Sequence[WantedTable]:
    """The delayed table, with its index on Due, and the journal's."""
    kind = location.kind
    wanted = WantedTable(
        delayed,
        "delayed table",
        columns={column: frozenset({of_type}) for column, of_type in kind.columns.items()},
        rights=_DELAYED_RIGHTS,
        create=kind.advice,
        reshape=_RESHAPE,
        indexes=(location.dialect.tables.due_index(kind, delayed),),
        # The headers of the MSMQ transport are bytes.
        unicode="Headers" if kind.columns.get("Headers") == "nvarchar" else None,
        key=kind.names.get("id"),
    )
    return [wanted, *wanted_journals(location.dialect, delayed)]


def wanted_journals(dialect: Dialect, beside: Any) -> Sequence[WantedTable]:
    """duesweep's own tables next to a delayed table."""
    created = own_tables(dialect.statements)
    return [
        WantedTable(
            table,
            "journal table",
            columns={
                column: _ALIKE.get(kind, frozenset({kind}))
                for column, kind in created[name].columns.items()
            },
            rights=_JOURNAL_RIGHTS,
            create="run the command `setup` once",
            reshape=(
                "another version of duesweep created it: let that version settle its sweeps, drop "
                "the tables duesweep_…, and run the command `setup`"
            ),
            is_journal=True,
            key=created[name].key,
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
    tables, wanted, delayed = dialect.tables, list[WantedTable](), None
    with dialect.connect(dsn, timeouts.task) as session:
        yield ok(Check.SERVER_REACHABLE, setting, "The server answers")
        yield from _clock_skew(setting, lambda: aware(session.row("doctor_clock").now))
        of_session = list(tables.check_session(session, setting))
        yield from of_session
        if store is not None:
            try:
                delayed = store.find_delayed(session)
                wanted += wanted_tables(store, delayed)
            except ConfigError as error:
                yield fault_of(Check.ONE_DELAYED_TABLE, setting, error.problem)
                # All candidates are in the same schema, and so is the journal.
                wanted += wanted_journals(dialect, store.delayed)
        journal = [one for one in wanted if one.is_journal]
        wanted += queues()
        there = tables.find(session, wanted)
        if journal and not any(one.table in there for one in journal):
            names = ", ".join(one.name for one in journal)
            text = "duesweep's own tables do not exist, or this user has no rights on them"
            advice = "run the command `setup` once"
            yield fault(Check.SETUP, setting, f"{NOT_SET_UP}: {text}: {names}", advice)
            wanted = [one for one in wanted if not one.is_journal]
        else:
            # A sweep's start adds these to a journal of the first format, or says who may.
            added = [one for one in journal if one.table not in there]
            if all(one.table == journal_tables(one.table)["leases"] for one in added):
                wanted = [one for one in wanted if one not in added]
        checks = _Checks(session, dialect, store)
        for one in wanted:
            if (found := there.get(one.table)) is None:
                yield checks.missing(one)
                continue
            told = list(table_findings(one, found, tables.indexes(session, one.table, found)))
            yield from told
            if not any(each.stops for each in [*of_session, *told]):
                yield from checks.doctors_trial(one, found)
        store = store if delayed in there and there[delayed].is_table else None
        if store is not None:
            yield from _empty_beside_full(session, store, delayed)
        yield from tables.more_findings(session, setting, store, queue_columns)


def _clock_skew(setting: str, server_time: Callable[[], datetime]) -> Iterator[Finding]:
    clock = World().clock
    before, server, after = clock.now(), server_time(), clock.now()
    ahead = max(server - after, before - server)
    if ahead > _SKEW:
        where = "ahead of" if server > after else "behind"
        yield warning(
            Check.CLOCK_SKEW,
            setting,
            f"The server's clock is {ahead / timedelta(seconds=1):,.1f} s {where} this machine's. "
            "Only the server's decides which messages are due, but times in logs and error queues "
            "are wrong by as much",
            "synchronise both machines by NTP",
        )


@dataclass(frozen=True, slots=True)
class _Checks:
    """The checks of a database's tables. `location` None: no messages wait there."""

    session: Session
    dialect: Dialect
    location: Location | None

    def of_sweeps(
        self, wanted: Sequence[WantedTable], there: Mapping[Any, FoundTable]
    ) -> Iterator[Finding]:
        """The findings that a sweep makes on tables; `there` are the existing ones. It tries only
        tables with hooks.
        """
        for one in wanted:
            if (found := there.get(one.table)) is None:
                yield self.missing(one)
                continue
            told = list(table_findings(one, found))
            yield from told
            if found.hooks and not any(each.stops for each in told):
                yield from self._trial(one, found, found.hooks)

    def missing(self, wanted: WantedTable) -> Finding:
        """That there is no such table, and which one may be meant."""
        tables, names = self.dialect.tables, list[str]()
        # Names of duesweep's own tables are never mistaken.
        if not wanted.is_journal:
            names = [other.sql for other in tables.similar(self.session, wanted.table)]
        near = difflib.get_close_matches(wanted.name, names, n=3)
        hint = f"did you mean {' or '.join(near)}? If not, " if near else ""
        text = f"There is no {wanted.role} {wanted.name}, or this user has no rights on it"
        return fault(Check.TABLE_EXISTS, wanted.name, text, hint + wanted.create, stops=True)

    def doctors_trial(self, wanted: WantedTable, found: FoundTable) -> Iterator[Finding]:
        """The trial of a table without other faults. The doctor also looks for rows that refer to
        messages: one message without them can be removed, and another cannot.
        """
        keys: list[str] = []
        if self.location is not None and wanted.table in self.location.candidates:
            rows = self.session.rows("doctor_references", **_place(wanted.table))
            keys = [f"foreign key {row.name} of {row.table}" for row in rows]
        try:
            findings = self._trial(wanted, found, [*found.hooks, *keys])
        except StoreError as error:
            text = f"It was not tried: {error.text}"
            findings = [skipped(Check.TABLE_SHAPE, wanted.name, text)]
        yield from findings
        if keys and not any(each.stops for each in findings):
            yield warning(
                Check.TABLE_TRIGGERS,
                wanted.name,
                f"A message to which a row refers cannot be removed, and ends its sweep: it has "
                f"{' and '.join(keys)}",
                "drop it, or create it again with ON DELETE CASCADE",
            )

    def _trial(
        self, wanted: WantedTable, found: FoundTable, hooks: Sequence[str]
    ) -> Sequence[Finding]:
        """Findings on a sweep's statements on a table: only a trial, which is rolled back, shows
        whether `hooks` or constraints refuse them, or drop rows. Raises `StoreError` if it is
        locked.
        """
        name, has, took = wanted.name, " and ".join(hooks), None
        try:
            with suppress(UndoneError), self.session.transaction():
                if at_once := self.dialect.tables.at_once:
                    self.session.execute(at_once)
                took = self._try(wanted, found)
                raise UndoneError
        except (RefusedMessageError, StoreError) as error:
            if isinstance(error, StoreError) and error.transient:
                raise
            text = f"A sweep's statement on {name} fails: {error.text}"
            if not hooks:
                advice = error.advice or "let it take the rows that the transport writes"
                return [fault(Check.TABLE_SHAPE, name, text, advice, stops=True)]
            advice = "let that accept and return the row, or drop it"
            return [fault(Check.TABLE_TRIGGERS, name, f"{text}. It has {has}", advice, stops=True)]
        if took is None and found.hooks:
            text = f"It has {has}, and no message to try it with"
            return [skipped(Check.TABLE_TRIGGERS, name, text)]
        if took == 0:
            what = "does not take a row" if wanted.is_journal else "keeps a message that is removed"
            text = f"{name} {what}, and the server raises no error: {has} drops it"
            advice = "let it return the row, or drop it"
            return [fault(Check.TABLE_TRIGGERS, name, text, advice, stops=True)]
        return []

    def _try(self, wanted: WantedTable, found: FoundTable) -> int | None:
        """Try a sweep's statement on a table; how many rows it took. None: there is no message."""
        location, tables = self.location, self.dialect.tables
        if location is None or not (wanted.is_journal or wanted.table in location.candidates):
            tables.put_trial(self.session, wanted.table, found)
            return 1
        statements = self.session.named(location.names(wanted.table))
        if not wanted.is_journal:
            return tables.remove_any(statements)
        # A batch counts the row that it adds, and `open_sweep` its own.
        if wanted.table == journal_tables(location.delayed)["journal"]:
            return statements.execute("journal_slice", **_NO_SLICE)
        return 1


def check_tables(session: Session, location: Location, delayed: Any) -> None:
    """Raise `ConfigError` for a session that cannot sweep, or for the first table that is missing,
    of another shape, or without rights for this user. A missing index only makes sweeps slow.
    """
    tables, wanted = location.dialect.tables, wanted_tables(location, delayed)
    refuse(tables.check_session(session, "store.dsn"))
    there = _complete(session, location, wanted, delayed)
    refuse(_Checks(session, location.dialect, location).of_sweeps(wanted, there))


def check_sight(session: Session, location: Location, delayed: Any) -> None:
    """Raise `ConfigError` for a table of the store that has another shape, or whose rows are hidden
    from this user by row-level security.
    """
    to_read = _to_read(location, delayed)
    there = location.dialect.tables.find(session, to_read)
    found = _Checks(session, location.dialect, location).of_sweeps(to_read, there)
    refuse(each for each in found if each.check in _OF_SIGHT)


def check_reading(session: Session, location: Location, delayed: Any) -> None:
    """Raise `ConfigError` for the first table that is missing, of another shape or with hidden
    rows, and for the ones that this user may not read. Who only reads needs no other right.
    """
    to_read = _to_read(location, delayed)
    there = location.dialect.tables.find(session, to_read)
    if journal_tables(delayed)["leases"] not in there:
        # If this role may not create it, the finding on a missing table says what to do.
        with suppress(ConfigError):
            there = _complete(session, location, to_read, delayed)
    found = list(_Checks(session, location.dialect, location).of_sweeps(to_read, there))
    refuse(each for each in found if each.check in _OF_READERS)
    if unread := [each.about for each in found if each.stops and each.check is Check.TABLE_RIGHTS]:
        raise ConfigError(
            f"This user lacks SELECT on {', '.join(unread)}",
            advice="grant it; this command needs no other right on them",
        )


def _to_read(location: Location, delayed: Any) -> Sequence[WantedTable]:
    return [replace(one, rights=_READING_RIGHTS) for one in wanted_tables(location, delayed)]


def _complete(
    session: Session, location: Location, wanted: Sequence[WantedTable], delayed: Any
) -> Mapping[Any, FoundTable]:
    """The existing ones of the tables. A journal of the first format gets its missing columns and
    the table of leases: then an upgrade needs no `setup`. Earlier versions refuse it afterwards.
    Raises `ConfigError` if this role may not do that.
    """
    tables, journal = location.dialect.tables, journal_tables(delayed)
    there = tables.find(session, wanted)
    missing = {name for name, table in journal.items() if table not in there}
    bindings = there.get(journal["bindings"])
    if bindings is None or missing - {"leases"}:
        return there
    new = [journal[name] for name in missing]
    lacks_columns = not set(AGE_COLUMNS) <= set(bindings.columns)
    lacking = [*new, journal["bindings"]] if lacks_columns else new
    if not lacking:
        return there
    text = tables.creation("create_journal", **journal)
    tables.create(session, new, [(lacking, [text])], "store.schema")
    logs.warning("journal_completed", tables=[table.sql for table in lacking])
    return tables.find(session, wanted)


def refuse_other_tables(session: Session, tables: Tables, wanted: Sequence[WantedTable]) -> None:
    """Raise `ConfigError` for the first of these tables that is there with another shape."""
    there = tables.find(session, [replace(each, rights=()) for each in wanted])
    for each in wanted:
        if (found := there.get(each.table)) is not None:
            refuse(_shape(each, found))


def found_columns(
    session: Session, tables: Tables, wanted: Iterable[Any]
) -> Mapping[Any, Collection[str]]:
    """The columns of the ones of these tables that are there."""
    there = tables.find(session, [WantedTable(table) for table in wanted])
    return {table: found.columns for table, found in there.items()}


def misspelt(session: Session, location: Location, delayed: Any) -> Problem | None:
    """That the delayed table is missing, and one with almost the same name is there, in its schema:
    the other one may be meant.
    """
    tables = location.dialect.tables
    if location.kind.create is None or delayed in found_columns(session, tables, [delayed]):
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
    # Of the endpoints' names.
    names = (each.table.rpartition(".")[0] or each.table for each in (table, other))
    parts, others = (_PUNCTUATION.split(each.casefold()) for each in names)
    one, two = "".join(parts), "".join(others)
    if one == two:
        return True
    longest = max(len(one), len(two))
    ratio = difflib.SequenceMatcher(None, one, two, autojunk=False).ratio()
    same_codes = [*filter(_is_code, parts)] == [*filter(_is_code, others)]
    return longest >= _LEAST_LETTERS and same_codes and ratio >= 1 - _ERRORS / longest


def _is_code(part: str) -> bool:
    return len(part) <= _CODE_LETTERS or any(map(str.isdecimal, part))


def _empty_beside_full(session: Session, location: Location, delayed: Any) -> Iterator[Finding]:
    """A warning of an empty delayed table if one with almost the same name has messages."""
    tables = location.dialect.tables
    near = [each for each in tables.similar(session, delayed) if is_near(delayed, each)]
    full = [each for each in near if estimated_rows(session, each)]
    if full and not session.named(location.names(delayed)).rows("doctor_waiting", most=1):
        text = f"It is empty, while {full[0].sql} has messages: that one may be the endpoint's"
        advice = f"correct {location.kind.settings.replace(' and ', ' or ')} if it is"
        yield warning(Check.TABLE_EXISTS, delayed.sql, text, advice)


def estimated_rows(session: Session, table: Any) -> int:
    """About how many rows a table has."""
    return int(session.row("estimate_rows", **_place(table)).rows)


def _place(table: Any) -> dict[str, str]:
    """The values by which statements about the catalog of a session's database find a table."""
    return {"schema": table.schema, "table": table.table, "name": table.sql}


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


def table_findings(
    wanted: WantedTable, found: FoundTable, indexed: Indexed | None = None
) -> Iterator[Finding]:
    """Findings on a table that is there. `indexed` None: only findings by which a sweep may be
    refused; else also the doctor's.
    """
    yield from _shape(wanted, found)
    yield from found.faults
    if wanted.unicode in found.columns:
        yield from _narrow_headers(wanted, found.columns[str(wanted.unicode)])
    if indexed is not None:
        yield from _doctors_findings(wanted, found, indexed)


def _doctors_findings(
    wanted: WantedTable, found: FoundTable, indexed: Indexed
) -> Iterator[Finding]:
    name = wanted.name
    if found.fault_by(Check.TABLE_RIGHTS) is None:
        yield ok(Check.TABLE_RIGHTS, name, f"This user has {', '.join(wanted.rights)}")
    if wanted.is_journal and found.hooks:
        yield risky_hooks(name, found.hooks)
    for index in wanted.indexes:
        # If the column itself is missing, the finding on the columns says so.
        if index.column in found.columns and not index.is_in(indexed):
            yield _lacking_index(name, index)


def _lacking_index(name: str, index: WantedIndex) -> Finding:
    text = f"No index that can be used begins with {index.column}: {index.harm}"
    return warning(Check.TABLE_INDEX, name, text, statements=[index.statement])


def _shape(wanted: WantedTable, found: FoundTable) -> Iterator[Finding]:
    """The finding on its shape, if there is one. A newer format is no fault of the table."""
    check, name = Check.TABLE_SHAPE, wanted.name
    what = f"The journal's table {name}"
    newer = unknown_format(what, found.mark, JOURNAL_FORMAT) if wanted.is_journal else None
    wrong = wrong_columns(wanted.columns, found.columns)
    if wanted.is_journal:
        # Commands read a journal without these, and complete it before they write.
        wrong = {c: kind for c, kind in wrong.items() if kind is not None or c not in AGE_COLUMNS}
    if wrong.get(wanted.unicode or "") in _NARROW:
        # The finding on its characters says so.
        del wrong[str(wanted.unicode)]
    if newer is not None:
        yield fault_of(check, name, newer, stops=True)
    elif not found.is_table:
        text = f"{name} cannot be the {wanted.role}: it is a view, a foreign table or the like, "
        advice = "set the database, schema and table that hold the rows"
        yield fault(check, name, f"{text}whose rows cannot be locked", advice, stops=True)
    elif wrong:
        missing = [name for name, kind in wrong.items() if kind is None]
        lacks = [f"it lacks {column_names(wanted.columns, missing)}"] if missing else []
        others = [
            f"{column} is {kind}, not {' or '.join(sorted(wanted.columns[column]))}"
            for column, kind in sorted(wrong.items())
            if kind is not None
        ]
        text = f"{name} is not the {wanted.role} that is expected: {', '.join([*lacks, *others])}"
        yield fault(check, name, text, wanted.reshape, stops=True)


def _narrow_headers(wanted: WantedTable, kind: str) -> Iterator[Finding]:
    """Headers that lose characters: a delayed table may not have them."""
    if kind in _NARROW:
        column = str(wanted.unicode)
        is_queue, when = kind in wanted.columns[column], "while its endpoint is stopped"
        alter = f"ALTER TABLE {wanted.name} ALTER COLUMN {column} nvarchar(max) NOT NULL"
        text = f"{column} is {kind}, so characters outside its code page become question marks"
        more = " if endpoints send them, while sweeps write them as escapes" if is_queue else ""
        yield Finding(
            Check.HEADERS_UNICODE,
            Severity.WARNING if is_queue else Severity.FAULT,
            wanted.name,
            text + more,
            f"run {alter}, {when}",
            [f"-- Only {when}:\n{alter}"],
            stops=not is_queue,
        )


def risky_hooks(name: str, hooks: Sequence[str]) -> Finding:
    """A table whose triggers or rules are not tried."""
    text = f"It has {' and '.join(hooks)}, which could drop rows"
    return warning(Check.TABLE_TRIGGERS, name, text, "drop it, unless it keeps all rows")


def missing_rights(wanted: WantedTable, missing: Sequence[str], grants: Sequence[str]) -> Finding:
    """A table on which this user lacks rights, which `grants` give."""
    more = set(wanted.rights) - set(_READING_RIGHTS)
    return Finding(
        Check.TABLE_RIGHTS,
        Severity.FAULT,
        wanted.name,
        f"This user lacks {', '.join(missing)} on {wanted.name}",
        f"run {'; '.join(grants)}; `doctor --print-sql` prints all statements",
        grants,
        stops=True,
        only_reads=more <= set(missing),
    )


def missing_index(session: Session, location: Location, delayed: Any) -> Problem | None:
    """The index on Due, if the delayed table is there and lacks it: sweeps work, but slowly. None
    if the index comes with the table.
    """
    tables = location.dialect.tables
    index = tables.due_index(location.kind, delayed)
    found = None
    if index.setup is not None:
        found = tables.find(session, [WantedTable(delayed)]).get(delayed)
    if found is None or index.is_in(tables.indexes(session, delayed, found)):
        return None
    return next(notices([_lacking_index(delayed.sql, index)]))


def waiting_destinations(location: Location, most: int) -> Sequence[str]:
    """The destinations of the messages that are due first, at most `most` messages; without the
    endpoint's own queue and unreadable addresses. Raises `ConfigError` and `StoreError` as a sweep
    does.
    """
    with location.dialect.connect(location.dsn, location.timeouts.task) as session:
        delayed = location.find_delayed(session)
        check_sight(session, location, delayed)
        statements = session.named(location.names(delayed))
        return destinations(statements.rows("doctor_waiting", most=most))
