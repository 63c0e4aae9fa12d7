"""The location of a relational store, and the texts and rules of its server: its dialect.

Nothing else asks which server it is. Statements that a store calls have the same names in every
dialect; each has more of its own.
"""
# ruff: noqa: ARG002 - no dialect needs all that another one does

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import Any, ClassVar
from uuid import UUID

from duesweep.core.address import Addresses
from duesweep.core.errors import ConfigError, refuse_dropped
from duesweep.core.finding import Finding
from duesweep.core.headers import write_json
from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID
from duesweep.core.policy import DEFAULT_TIMEOUTS, SessionWaits, Timeouts
from duesweep.core.world import World
from duesweep.drivers.statements import Columns, FoundTable, Session, expression
from duesweep.stores.due import Horizon
from duesweep.stores.kinds import TableKind
from duesweep.stores.messages import NewMessage
from duesweep.stores.summary import Lateness

# A message by which queues are tried. A trigger may check what NServiceBus writes.
TRIAL_MESSAGE = (
    write_json(
        {
            MESSAGE_ID: str(UUID(int=0)),
            "NServiceBus.MessageIntent": "Send",
            "NServiceBus.ContentType": "application/json",
            ENCLOSED_MESSAGE_TYPES: "duesweep.Trial",
        }
    ),
    b"{}",
)
JOURNAL_TABLES = (
    "journal",
    "attempts",
    "sweeps",
    "bindings",
    "changes",
    "pauses",
    "limits",
    "leases",
)

# The values of a statement, by their names.
Values = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A delayed table, the first of `candidates` that is there, with duesweep's own tables in the
    same schema. Tables and addresses are of the dialect's own types. `batch_bytes` bounds the bytes
    that a claim reads, if a claim key does not tell how large its message is. `world`: where time
    and ids come from.
    """

    dialect: "Dialect"
    dsn: str = field(repr=False)
    source: str
    candidates: tuple[Any, ...]
    addresses: Any
    kind: TableKind
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    writer_time_zone: str | None = None
    batch_bytes: int = 8_000_000
    jdbc_url: str | None = field(default=None, repr=False)
    world: World = field(default_factory=World, repr=False)

    @property
    def delayed(self) -> Any:
        """The delayed table that `setup` creates if it is missing."""
        return self.candidates[0]

    @property
    def own_queue(self) -> str:
        """The endpoint's own queue: its table, or its name if it is in another database."""
        addresses = self.addresses
        return str(addresses.own_queue) if self.kind.has_own_queue else addresses.endpoint

    def store_row(self, statements: Session, message: NewMessage, due: object) -> str:
        """Store a message with this Due; its key. Raises `RefusedMessageError` if the table drops
        it.
        """
        values = self.kind.new_row(message, self.addresses.endpoint, self.world)
        if "message_key" in values:
            statements.execute(self.kind.store, due=due, **values)
            return str(values["message_key"])
        rows = statements.rows(self.kind.store, due=due, **values)
        refuse_dropped("The delayed table", len(rows), 1)
        return str(rows[0][0])

    def pausing(self, patterns: Iterable[str]) -> str:
        """Patterns of paused destinations as JSON, in the form that statements test."""
        likes = (self.kind.pausing(pattern, self.addresses) for pattern in patterns)
        return json.dumps([*chain.from_iterable(likes)])

    def names(self, delayed: Any = None) -> dict[str, str]:
        """The names that statements have in braces, for one of the candidates."""
        delayed = delayed or self.delayed
        tables = {"delayed": delayed, **journal_tables(delayed)}
        columns = {
            name: expression(self.dialect.statements, text)
            for name, text in self.kind.names.items()
        }
        return {name: table.sql for name, table in tables.items()} | columns

    def find_delayed(self, session: Session) -> Any:
        """Which of the candidates is the delayed table: the only one, or the existing one.

        Raises `ConfigError` if two exist, because each may hold messages.
        """
        if len(self.candidates) == 1:
            return self.delayed
        found = [
            table for table in self.candidates if session.row("find_table", name=table.sql).found
        ]
        if len(found) > 1:
            raise ConfigError(
                f"There are both {found[0].sql} and {found[1].sql}",
                advice=(
                    "set store.delayed_table to the table in which the endpoint stores delayed "
                    "messages"
                ),
            )
        return found[0] if found else self.delayed


def journal_tables(beside: Any) -> dict[str, Any]:
    """duesweep's own tables next to a delayed table."""
    return {name: replace(beside, table=f"duesweep_{name}") for name in JOURNAL_TABLES}


# The first column of an index that can be used, and whether the index leaves rows out.
Indexed = Collection[tuple[str, bool]]


@dataclass(frozen=True, slots=True)
class WantedIndex:
    """An index that begins with `column`. `harm` is what happens without it; `statement` creates
    it. A `partial` one may leave rows out. `setup`: the text by which `setup` creates it on a table
    that is there; None: it comes with the table, and sweeps do not report a missing one.
    """

    column: str
    harm: str
    statement: str
    partial: bool = False
    setup: str | None = None

    def is_in(self, indexed: Indexed) -> bool:
        """Whether a table has such an index."""
        return (self.column, False) in indexed or (self.partial and (self.column, True) in indexed)


@dataclass(frozen=True, slots=True)
class WantedTable:
    """The expected `table`, of the server's own type.

    `create` and `reshape` are advice: what to do if the table is missing, or if its columns differ.
    `unicode` names the column whose text has to hold all characters. `is_journal`: it is one of
    duesweep's own tables, which `setup` creates together. `key`: the columns of its primary key.
    """

    table: Any
    role: str = "table"
    columns: Columns = field(default_factory=dict)
    rights: Sequence[str] = ()
    create: str = "create it"
    reshape: str = "give it the columns that the transport gives it"
    indexes: Sequence[WantedIndex] = ()
    unicode: str | None = None
    is_journal: bool = False
    key: str | None = None

    @property
    def name(self) -> str:
        """The table's name as statements have it."""
        return str(self.table.sql)


class Tables(ABC):
    """How a server's tables are looked at and created. Sessions and tables are of the dialect's own
    types.

    `body_string` is the column of queues with a body as text. `has_older_queues`: queues may have
    the columns of older versions of the transport. `at_once` is the statement by which triggers and
    constraints that wait for the end of the transaction act at once; None: none waits.
    `counts_inserts`: a trigger does not change the count that an INSERT returns.
    """

    body_string: ClassVar[str]
    has_older_queues: ClassVar[bool] = False
    at_once: ClassVar[str | None] = None
    counts_inserts: ClassVar[bool] = True

    @abstractmethod
    def check_session(self, session: Any, setting: str) -> Iterator[Finding]:
        """The findings by which a session cannot sweep; `setting` names the database."""

    def more_findings(
        self, session: Any, setting: str, store: Location | None, queue_columns: Columns
    ) -> Iterator[Finding]:
        """The doctor's findings on a server and its store, with which sweeps start; queue tables
        have these columns.
        """
        return iter(())

    @abstractmethod
    def find(self, session: Any, wanted: Sequence[WantedTable]) -> Mapping[Any, FoundTable]:
        """The existing ones of tables, and the faults of each: a missing one of its rights, rows
        that are hidden or could be lost.
        """

    @abstractmethod
    def indexes(self, session: Any, table: Any, found: FoundTable) -> Indexed:
        """The indexes of a table."""

    @abstractmethod
    def similar(self, session: Any, table: Any) -> Sequence[Any]:
        """Tables that may be meant if this one is missing."""

    @abstractmethod
    def put_trial(self, session: Any, table: Any, found: FoundTable) -> None:
        """Put a message into a queue."""

    @abstractmethod
    def remove_any(self, statements: Any) -> int | None:
        """Remove some message as a sweep does; how many are gone. None: the table is empty."""

    @abstractmethod
    def creation(self, name: str, /, **tables: Any) -> str:
        """The text of a named statement that creates or completes tables."""

    @abstractmethod
    def script(self, table: Any, texts: Iterable[str]) -> str:
        """Texts for the database of a table, as the server's command-line tools take them."""

    @abstractmethod
    def create(
        self,
        session: Any,
        new: Sequence[Any],
        scripts: Sequence[tuple[Sequence[Any], Sequence[str]]],
        named_by: str,
    ) -> None:
        """Create these new tables by scripts, each with its tables and its texts. `named_by` says
        what names the tables. Raises `ConfigError` if this user may not.
        """

    @abstractmethod
    def grants(self, role: str, rights: Mapping[Any, Sequence[str]], queues: Sequence[Any]) -> str:
        """The text that grants a role rights on tables, and more rights for queues."""

    @abstractmethod
    def due_index(self, kind: TableKind, delayed: Any) -> WantedIndex:
        """The index on Due that a delayed table of a kind needs."""


class Dialect(ABC):
    """The rules of one server; its texts are statements. A value without fields, because stores
    travel to tasks.

    `statements`: the folder with its SQL. `kinds`: its delayed tables, by `store.kind`. `tables`:
    how its tables are looked at and created. `task`: the class of a slice's session, a `SqlTask`.
    """

    statements: ClassVar[str]
    kinds: ClassVar[Mapping[str, TableKind]]
    tables: ClassVar[Tables]
    task: ClassVar[type[Any]]

    @abstractmethod
    def database_of(self, dsn: str) -> str:
        """The name of the database that a dsn means; `ConfigError` if it cannot be read."""

    @abstractmethod
    def addresses(self, endpoint: str, schema: str, dsn: str) -> Addresses:
        """How an endpoint's addresses are read, in a schema of the database that a dsn means."""

    @abstractmethod
    def connect(self, dsn: str, waits: SessionWaits) -> Session:
        """Open a session."""

    def zone(self, session: Session, location: Location) -> str | None:
        """The zone whose clock stored Dues show; None: they are in UTC, whatever a session's is."""
        return None

    @abstractmethod
    def horizon(self, session: Session, zone: str) -> Horizon:
        """The horizon now by NServiceBus's own predicate."""

    @abstractmethod
    def bounds(self, kind: TableKind, since: datetime | None, ends: Sequence[Any] = ()) -> str:
        """Each slice's number, and the (Due, place) from which and before which it goes. `ends` are
        rows of `plan_bounds`, one for each slice and the last; none: one slice from `since` on.
        """

    @abstractmethod
    def stream(
        self, session: Session, location: Location, seconds: float, *, is_ordered: bool
    ) -> AbstractContextManager[Session]:
        """Statements that read many rows in pages, for which the server may take `seconds`, while
        `session` reads others. `is_ordered`: the first rows have to come quickly.
        """

    @abstractmethod
    def prune_attempts(self, session: Session, source: str) -> int:
        """Drop the retry counters of messages that are gone; how many."""

    @abstractmethod
    def lateness(self, session: Session, sweep_id: UUID) -> Lateness:
        """How late a sweep's messages were."""


def batches_lock(sweep_id: UUID) -> str:
    """The lock that a sweep's batches share, and that closing the sweep takes alone, where a row
    cannot be locked for that.
    """
    return f"duesweep/sweep/{sweep_id}/batches"


def numbered(spans: Iterable[str]) -> str:
    """Slices as rows of a VALUES list: the number, and where each begins and ends."""
    return ", ".join(f"({number}, {span})" for number, span in enumerate(spans))
