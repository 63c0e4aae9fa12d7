"""What the doctor says of tables: all that differs from what is expected."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from duesweep.checks.finding import (
    Check,
    Finding,
    Severity,
    capitalized,
    fault,
    fault_of,
    ok,
    warning,
)
from duesweep.checks.tables import (
    Difference,
    FoundTable,
    WantedIndex,
    WantedTable,
    compare,
    newer_format,
)
from duesweep.core.address import bracket_name

NOT_SET_UP = "The command `setup` has not run"
# Types of text that hold the characters of one code page only.
_NARROW = {"varchar", "char", "text"}


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table as expected and as found; `found` is None if this user sees no such table. `grant` is
    what follows the rights in a GRANT to this user, and `more_grants` are needed beside it.
    `database` is the one to grant in, None if that is the session's.
    """

    wanted: WantedTable
    found: FoundTable | None
    grant: str
    more_grants: Sequence[str] = ()
    database: str | None = None


def all_table_findings(setting: str, tables: Sequence[TableFacts]) -> Iterator[Finding]:
    """Findings on all tables of a database. If `setup` has not run, one finding says so."""
    journal = [table for table in tables if table.wanted.is_journal]
    is_set_up = not journal or any(table.found for table in journal)
    if journal:
        yield _setup(setting, journal, is_set_up=is_set_up)
    for table in tables:
        if is_set_up or not table.wanted.is_journal:
            yield from table_findings(table)


def _setup(setting: str, journal: Sequence[TableFacts], *, is_set_up: bool) -> Finding:
    if is_set_up:
        return ok(Check.SETUP, setting, "The command `setup` has run")
    names = ", ".join(table.wanted.name for table in journal)
    return fault(
        Check.SETUP,
        setting,
        f"{NOT_SET_UP}: duesweep's own tables are missing, or closed to this user: {names}",
        "Run the command `setup` once",
    )


def table_findings(facts: TableFacts) -> Iterator[Finding]:
    """Findings on one table."""
    wanted, found = facts.wanted, facts.found
    if found is None:
        text = f"The {wanted.role} is missing, or closed to this user"
        yield fault(Check.TABLE_EXISTS, wanted.name, text, capitalized(wanted.create))
        return
    difference = compare(wanted, found)
    yield ok(Check.TABLE_EXISTS, wanted.name, "It exists")
    newer = newer_format(wanted.name, found) if wanted.is_journal else None
    if newer is None:
        yield _shape(wanted, difference)
    else:
        yield fault_of(Check.TABLE_SHAPE, wanted.name, newer)
    yield _rights(facts, found)
    for index in wanted.indexes:
        # If the column itself is missing, the finding on the columns says so.
        if index.column in found.columns:
            yield _index(wanted, difference, index)
    if wanted.unicode in found.columns:
        yield _unicode(wanted, found, difference)


def _shape(wanted: WantedTable, difference: Difference) -> Finding:
    if not difference.has_own_rows:
        return fault(
            Check.TABLE_SHAPE,
            wanted.name,
            f"The {wanted.role} is a view, a foreign table or the like, whose rows cannot be "
            "locked",
            "Set the database, schema and table that hold the rows",
        )
    wrong = sorted(
        _wrong_column(wanted, name, kind)
        for name, kind in difference.wrong_columns.items()
        if not _is_narrow(wanted, name, kind)
    )
    if not wrong:
        return ok(Check.TABLE_SHAPE, wanted.name, "Its columns are as expected")
    advice = capitalized(wanted.reshape)
    return fault(Check.TABLE_SHAPE, wanted.name, "; ".join(wrong), advice)


def _wrong_column(wanted: WantedTable, name: str, kind: str | None) -> str:
    if kind is None:
        return f"Column {name} is missing"
    return f"Column {name} is {kind}, not {' or '.join(sorted(wanted.columns[name]))}"


def _is_narrow(wanted: WantedTable, name: str, kind: str | None) -> bool:
    return name == wanted.unicode and kind in _NARROW


def _rights(facts: TableFacts, found: FoundTable) -> Finding:
    wanted = facts.wanted
    lacking = list(found.missing_grants)
    grants = list(found.missing_grants.values())
    if found.missing_rights:
        rights = ", ".join(found.missing_rights)
        lacking.insert(0, rights)
        grants = [f"GRANT {rights} {facts.grant}", *facts.more_grants, *grants]
    if not lacking:
        return ok(Check.TABLE_RIGHTS, wanted.name, f"This user has {', '.join(wanted.rights)}")
    text = f"This user lacks {' and '.join(lacking)}"
    advice, database = "; ".join(grants), facts.database
    if database is None:
        return fault(Check.TABLE_RIGHTS, wanted.name, text, advice, statements=grants)
    statements = [f"USE {bracket_name(database)}; {grant}" for grant in grants]
    return fault(
        Check.TABLE_RIGHTS,
        wanted.name,
        text,
        f"{advice}, in database {database}",
        statements=statements,
    )


def _index(wanted: WantedTable, difference: Difference, index: WantedIndex) -> Finding:
    if index not in difference.missing_indexes:
        return ok(Check.TABLE_INDEX, wanted.name, f"An index begins with {index.column}")
    text = f"No index that can be used begins with {index.column}: {index.harm}"
    return warning(
        Check.TABLE_INDEX, wanted.name, text, index.statement, statements=[index.statement]
    )


def _unicode(wanted: WantedTable, found: FoundTable, difference: Difference) -> Finding:
    column = str(wanted.unicode)
    kind = found.columns[column]
    if not _is_narrow(wanted, column, kind):
        return ok(Check.HEADERS_UNICODE, wanted.name, f"{column} is {kind}")
    is_refused = column in difference.wrong_columns
    more = "; a sweep refuses it" if is_refused else ""
    alter = f"ALTER TABLE {wanted.name} ALTER COLUMN {column} nvarchar(max) NOT NULL"
    when = "while its endpoint is stopped"
    return Finding(
        Check.HEADERS_UNICODE,
        Severity.FAULT if is_refused else Severity.WARNING,
        wanted.name,
        f"{column} is {kind}, so characters outside its code page become question marks{more}",
        f"{alter}, {when}",
        [f"-- Only {when}:\n{alter}"],
    )
