"""Tables as they should be, as they are, and what is to be said of the difference."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from duesweep.checks.finding import Check, Finding, Severity, fault, ok, warning

NOT_SET_UP = "The command `setup` has not run"
# Types of text that hold the characters of one code page only.
_NARROW = {"varchar", "char", "text"}


@dataclass(frozen=True, slots=True)
class WantedIndex:
    """An index that begins with `column`; `harm` is what comes of its absence. A `partial` one may
    leave rows out.
    """

    column: str
    harm: str
    statement: str
    partial: bool = False


@dataclass(frozen=True, slots=True)
class WantedTable:
    """What is expected of a table. `columns` are names to types, of which none is any type;
    `unicode` names the column whose text has to hold all characters; `grant` is what
    follows the rights in a GRANT; `create` and `reshape` say what to do where the table is missing,
    or its columns are others.
    """

    role: str
    name: str
    columns: Mapping[str, frozenset[str]]
    rights: Sequence[str]
    grant: str
    create: str
    indexes: Sequence[WantedIndex] = ()
    unicode: str | None = None
    reshape: str = (
        "Check store.kind, the schema and the name: this may be another table; if it is not, bring "
        "its columns to the shape that the transport gives them"
    )


@dataclass(frozen=True, slots=True)
class FoundTable:
    """What there is. `indexed` are the first columns of its indexes, `indexed_in_part` those of
    indexes that leave rows out; `missing_grants` says what else is lacking, and how to grant it.
    """

    is_table: bool
    columns: Mapping[str, str]
    missing_rights: Sequence[str] = ()
    indexed: frozenset[str] = field(default_factory=frozenset)
    indexed_in_part: frozenset[str] = field(default_factory=frozenset)
    missing_grants: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """Both; `found` None where there is no such table to be seen. `is_journal`: it is one of
    duesweep's own, which `setup` creates together.
    """

    wanted: WantedTable
    found: FoundTable | None
    is_journal: bool = False


def all_table_findings(setting: str, tables: Sequence[TableFacts]) -> Iterator[Finding]:
    """All that is to be said of a database's tables; that `setup` has not run is said once."""
    journal = [table for table in tables if table.is_journal]
    is_set_up = not journal or any(table.found for table in journal)
    if journal:
        yield _setup(setting, journal, is_set_up=is_set_up)
    for table in tables:
        if is_set_up or not table.is_journal:
            yield from table_findings(table)


def _setup(setting: str, journal: Sequence[TableFacts], *, is_set_up: bool) -> Finding:
    if is_set_up:
        return ok(Check.SETUP, setting, "The command `setup` has run")
    names = ", ".join(table.wanted.name for table in journal)
    return fault(
        Check.SETUP,
        setting,
        f"{NOT_SET_UP}: none of duesweep's own tables is there, {names}, or they are closed to "
        "this user",
        "Run the command `setup` once",
    )


def table_findings(facts: TableFacts) -> Iterator[Finding]:
    """All that is to be said of one table."""
    wanted, found = facts.wanted, facts.found
    if found is None:
        text = f"The {wanted.role} is not there, or is closed to this user"
        yield fault(Check.TABLE_EXISTS, wanted.name, text, wanted.create)
        return
    yield ok(Check.TABLE_EXISTS, wanted.name, "It is there")
    yield _shape(wanted, found)
    yield _rights(wanted, found)
    for index in wanted.indexes:
        # What it should be on may be missing: that is the shape's affair.
        if index.column in found.columns:
            yield _index(wanted, found, index)
    if wanted.unicode in found.columns:
        yield _unicode(wanted, found, str(wanted.unicode))


def _shape(wanted: WantedTable, found: FoundTable) -> Finding:
    if not found.is_table:
        return fault(
            Check.TABLE_SHAPE,
            wanted.name,
            f"The {wanted.role} is a view, a foreign table or the like, whose rows cannot be "
            "locked",
            "Let the configuration name the database, schema and table that hold the rows",
        )
    wrong = sorted(_wrong_columns(wanted, found))
    if not wrong:
        return ok(Check.TABLE_SHAPE, wanted.name, "Its columns are as expected")
    return fault(Check.TABLE_SHAPE, wanted.name, "; ".join(wrong), wanted.reshape)


def _wrong_columns(wanted: WantedTable, found: FoundTable) -> Iterator[str]:
    for name, types in wanted.columns.items():
        kind = found.columns.get(name)
        if kind is None:
            yield f"Column {name} is missing"
        elif types and kind not in types and not _is_narrow(wanted, name, kind):
            yield f"Column {name} is {kind}, not {' or '.join(sorted(types))}"


def _is_narrow(wanted: WantedTable, name: str, kind: str) -> bool:
    return name == wanted.unicode and kind in _NARROW


def _rights(wanted: WantedTable, found: FoundTable) -> Finding:
    lacking = list(found.missing_grants)
    grants = list(found.missing_grants.values())
    if found.missing_rights:
        rights = ", ".join(found.missing_rights)
        lacking.insert(0, rights)
        grants.insert(0, f"GRANT {rights} {wanted.grant}")
    if not lacking:
        return ok(Check.TABLE_RIGHTS, wanted.name, f"This user has {', '.join(wanted.rights)}")
    text = f"This user lacks {' and '.join(lacking)}"
    return fault(Check.TABLE_RIGHTS, wanted.name, text, "; ".join(grants))


def _index(wanted: WantedTable, found: FoundTable, index: WantedIndex) -> Finding:
    usable = found.indexed | (found.indexed_in_part if index.partial else frozenset())
    if index.column in usable:
        return ok(Check.TABLE_INDEX, wanted.name, f"An index begins with {index.column}")
    text = f"No index that can be used begins with {index.column}: {index.harm}"
    return warning(Check.TABLE_INDEX, wanted.name, text, index.statement)


def _unicode(wanted: WantedTable, found: FoundTable, column: str) -> Finding:
    kind = found.columns[column]
    if not _is_narrow(wanted, column, kind):
        return ok(Check.HEADERS_UNICODE, wanted.name, f"{column} is {kind}")
    is_refused = kind not in wanted.columns[column]
    more = "; a sweep refuses it" if is_refused else ""
    return Finding(
        Check.HEADERS_UNICODE,
        Severity.FAULT if is_refused else Severity.WARNING,
        wanted.name,
        f"{column} is {kind}, so that characters outside its code page become question marks"
        + more,
        f"ALTER TABLE {wanted.name} ALTER COLUMN {column} nvarchar(max) NOT NULL, while its "
        "endpoint is stopped",
    )
