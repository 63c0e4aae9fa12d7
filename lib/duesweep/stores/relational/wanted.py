"""What is expected of a store's tables, whichever the dialect."""

from collections.abc import Mapping

from duesweep.checks.tables import WantedIndex, WantedTable
from duesweep.stores.relational.kinds import TableKind

JOURNAL_TABLES = ("journal", "attempts", "sweeps", "bindings", "changes")
_JOURNAL_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
# A database administrator may have created the tables with the other type of text.
_ALIKE = {"text": frozenset({"text", "character varying"})}
# A session may lock only rows that it may change.
_DELAYED_RIGHTS = ("SELECT", "UPDATE", "DELETE")


def wanted_journal(name: str, columns: Mapping[str, str]) -> WantedTable:
    """One of duesweep's own tables."""
    return WantedTable(
        role="journal table",
        name=name,
        columns={column: _ALIKE.get(kind, frozenset({kind})) for column, kind in columns.items()},
        rights=_JOURNAL_RIGHTS,
        create="run the command `setup` once",
        reshape=(
            "another version of duesweep created it; run the command `setup`, which adds missing "
            "columns"
        ),
        is_journal=True,
    )


def wanted_delayed(
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
