"""Finds out to which ledger the tables under a root belong, and what is wrong. Without I/O."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from duesweep.core.format import unknown_format
from duesweep.errors import ConfigError

ID_PROPERTY = "duesweep.ledgerId"
ROLE_PROPERTY = "duesweep.table"
# The first table is created first, and its id is the ledger's id.
TABLES = ("tombstones", "errors", "retries", "sweeps")
# Created by the first command that needs it. From then on, a property of the first table says that
# it has to be there.
CHANGES = "changes"
CHANGES_PROPERTY = "duesweep.hasChanges"
# A property of the first table: the format of all, see `core/format.py`.
FORMAT_PROPERTY = "duesweep.format"
# A property of the first table, JSON: the sources of which rows before an instant were removed.
KEPT_FROM_PROPERTY = "duesweep.keptFrom"
# Every table of a ledger has one of these sets, also tables of older versions.
_COLUMNS = {"source", "message_key"}, {"source", "sweep_id"}


@dataclass(frozen=True, slots=True)
class LedgerTableFacts:
    """What is at the location of the table `name`. `properties` None: no Delta table; then
    `holds_data` says whether there are data files without a log. `columns` is empty for a table
    that has an id.
    """

    name: str
    location: str
    properties: Mapping[str, str] | None = None
    holds_data: bool = False
    columns: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Identity:
    """`ledger_id` None: there is no ledger. `missing` are the names of tables that do not exist.
    `stray` are the locations of tables with data but no log. `unmarked` are the names of tables
    without an id: older versions gave only `tombstones` one. `has_changes`: the table `changes`
    belongs to the ledger.
    """

    ledger_id: UUID | None
    missing: tuple[str, ...] = ()
    stray: tuple[str, ...] = ()
    unmarked: tuple[str, ...] = ()
    has_changes: bool = False

    def refuse_stray(self) -> None:
        """Raise `ConfigError` where a new table would take in data files that are there already."""
        if self.stray:
            raise ConfigError(
                f"There are data files without a Delta log at {', '.join(self.stray)}",
                advice=(
                    "restore the _delta_log from a backup, or move the data away and, if the "
                    "journal is bound to a ledger, run the command `setup --rebind`"
                ),
            )

    def refuse_incomplete(self, root: str) -> None:
        """Raise `ConfigError` where a ledger in use has lost tables."""
        self.refuse_stray()
        if self.ledger_id is not None and self.missing:
            raise ConfigError(
                f"The ledger {self.ledger_id} at {root} has lost {_name_tables(self.missing)}",
                advice=(
                    "restore that from a backup, or, if it is gone for good, run the command "
                    "`setup --rebind`, and the next sweep creates it anew, empty"
                ),
            )


def identify(tables: Iterable[LedgerTableFacts]) -> Identity:
    """The ledger of these tables; `ConfigError` where a table is not of this ledger, or the ledger
    is newer than this version knows.
    """
    ids: dict[str, UUID] = {}
    missing, stray, unmarked = [], [], []
    has_changes = False
    for table in tables:
        mark = (table.properties or {}).get(FORMAT_PROPERTY)
        if newer := unknown_format(f"The ledger's table at {table.location}", mark):
            raise ConfigError.of([newer])
        has_changes = has_changes or requires_changes(table)
        if table.properties is None:
            missing.append(table.name)
            if table.holds_data:
                stray.append(table.location)
        elif ID_PROPERTY in table.properties:
            ids[table.location] = _id_of(table, table.properties)
        elif table.name == TABLES[0] or not any(needed <= table.columns for needed in _COLUMNS):
            raise _not_ours(table)
        else:
            unmarked.append(table.name)
    if len(set(ids.values())) > 1:
        listed = ", ".join(f"{location} is of ledger {one}" for location, one in ids.items())
        raise ConfigError(
            f"Tables of different ledgers are under one root: {listed}",
            advice=(
                "move the tables that do not belong there, or set ledger.root to a folder or "
                "schema of its own"
            ),
        )
    ledger_id = next(iter(ids.values()), None)
    return Identity(ledger_id, tuple(missing), tuple(stray), tuple(unmarked), has_changes)


def requires_changes(table: LedgerTableFacts) -> bool:
    """Whether this table says that the ledger has the table `changes`, too."""
    return CHANGES_PROPERTY in (table.properties or {})


def kept_from(table: LedgerTableFacts) -> dict[str, datetime]:
    """From when on the ledger has all rows of a source; of others it has all there were. `table` is
    its first.
    """
    found = json.loads((table.properties or {}).get(KEPT_FROM_PROPERTY, "{}"))
    return {source: datetime.fromisoformat(moment) for source, moment in found.items()}


def kept_from_property(kept: Mapping[str, datetime]) -> dict[str, str]:
    """The same as a property."""
    text = json.dumps({source: moment.isoformat() for source, moment in kept.items()})
    return {KEPT_FROM_PROPERTY: text}


def _id_of(table: LedgerTableFacts, properties: Mapping[str, str]) -> UUID:
    role = properties.get(ROLE_PROPERTY, table.name)
    if role != table.name:
        raise ConfigError(
            f"The table at {table.location} is the ledger's {role}, but should be {table.name}",
            advice="move it to its own location",
        )
    try:
        return UUID(properties[ID_PROPERTY])
    except ValueError as error:
        raise _not_ours(table) from error


def _not_ours(table: LedgerTableFacts) -> ConfigError:
    return ConfigError(
        f"{table.location} is not a table of a duesweep ledger",
        advice="set ledger.root to a folder or schema of its own",
    )


def _name_tables(names: tuple[str, ...]) -> str:
    return ("the table " if len(names) == 1 else "the tables ") + ", ".join(names)
