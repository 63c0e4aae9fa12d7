"""What is expected of a table, what was found, and how the two differ."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from duesweep.core.account import unknown_format
from duesweep.core.errors import Problem

POSTGRESQL_QUEUE_RIGHTS: Sequence[str] = ("INSERT",)
# SELECT to count what arrived: a trigger may drop rows without an error.
SQL_SERVER_QUEUE_RIGHTS: Sequence[str] = ("SELECT", "INSERT")
# Names of columns, and the types that each may have; none: any type.
Columns = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class WantedIndex:
    """An index that begins with `column`. `harm` is what happens without it; `statement` creates
    it. A `partial` one may leave rows out.
    """

    column: str
    harm: str
    statement: str
    partial: bool = False


@dataclass(frozen=True, slots=True)
class WantedTable:
    """What is expected of a table.

    `create` and `reshape` are advice: what to do if the table is missing, or if its columns differ.
    `unicode` names the column whose text has to hold all characters. `is_journal`: it is one of
    duesweep's own tables, which `setup` creates together.
    """

    role: str
    name: str
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


@dataclass(frozen=True, slots=True)
class FoundTable:
    """What a server says of a table. `columns` are names to types. `indexed` are the first columns
    of its indexes, `indexed_in_part` those of indexes that leave rows out. `missing_grants`: what
    else this user lacks, and the statement that grants it. `mark` says the format of duesweep's own
    tables.
    """

    is_table: bool
    columns: Mapping[str, str]
    missing_rights: Sequence[str] = ()
    indexed: frozenset[str] = field(default_factory=frozenset)
    indexed_in_part: frozenset[str] = field(default_factory=frozenset)
    missing_grants: Mapping[str, str] = field(default_factory=dict)
    mark: str | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """How a table differs from what is expected. `has_own_rows` is False for a view, a foreign
    table and the like. `wrong_columns` are names to the type that was found, None for a column that
    is missing.
    """

    has_own_rows: bool
    wrong_columns: Mapping[str, str | None]
    missing_rights: Sequence[str]
    missing_indexes: Sequence[WantedIndex]


def compare(wanted: WantedTable, found: FoundTable) -> Difference:
    """How `found` differs from `wanted`."""
    return Difference(
        has_own_rows=found.is_table,
        wrong_columns=wrong_columns(wanted.columns, found.columns),
        missing_rights=found.missing_rights,
        missing_indexes=[index for index in wanted.indexes if not _has_index(found, index)],
    )


def newer_format(name: str, found: FoundTable) -> Problem | None:
    """What is wrong if one of duesweep's own tables is newer than this version knows."""
    return unknown_format(f"The journal's table {name}", found.mark)


def index_notices(wanted: WantedTable, found: FoundTable) -> Sequence[Problem]:
    """What happens without the indexes that are missing, and the statements that create them."""
    return [
        Problem(
            f"No index of {wanted.name} that can be used begins with {index.column}: {index.harm}",
            f"run {index.statement}",
        )
        for index in compare(wanted, found).missing_indexes
    ]


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


def _has_index(found: FoundTable, index: WantedIndex) -> bool:
    usable = found.indexed | (found.indexed_in_part if index.partial else frozenset())
    return index.column in usable
