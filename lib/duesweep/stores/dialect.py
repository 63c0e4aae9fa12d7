"""Where a relational store is, and what its server says in its own way: its dialect.

Nothing else asks which server it is. Statements have the same names in every dialect.
"""
# ruff: noqa: ARG002 - no dialect needs all that another one does

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import Any, ClassVar
from uuid import UUID

from duesweep.core.message import Message
from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Limits, Timeouts
from duesweep.drivers.statements import Session
from duesweep.errors import Problem
from duesweep.stores.kinds import TableKind
from duesweep.stores.summary import Lateness
from duesweep.stores.values import Horizon

JOURNAL_TABLES = ("journal", "attempts", "sweeps", "bindings", "changes", "pauses", "limits")

# The values of a statement, by their names.
Values = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A delayed table, the first of `candidates` that is there, with duesweep's own tables in the
    same schema. Tables and addresses are of the dialect's own types. `batch_bytes` bounds what a
    claim reads, where a claim key does not tell how large its message is.
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

    @property
    def delayed(self) -> Any:
        """The delayed table that `setup` creates if there is none."""
        return self.candidates[0]

    @property
    def own_queue(self) -> str:
        """The endpoint's own queue: its table, or its name where that is not beside the store."""
        addresses = self.addresses
        return str(addresses.own_queue) if self.kind.has_own_queue else addresses.endpoint

    def names(self, delayed: Any = None) -> dict[str, str]:
        """The names that statements have in braces, for one of the candidates."""
        delayed = delayed or self.delayed
        tables = {"delayed": delayed, **journal_tables(delayed)}
        quoted = {name: self.dialect.quoted(table) for name, table in tables.items()}
        return quoted | self.kind.names


def journal_tables(beside: Any) -> dict[str, Any]:
    """duesweep's own tables beside a delayed table."""
    return {name: replace(beside, table=f"duesweep_{name}") for name in JOURNAL_TABLES}


class Dialect(ABC):
    """What one server says and reads in its own way. A value without fields, because stores travel
    to tasks. `finds_quickly`: each kind of table has an index on its keys.
    """

    finds_quickly: ClassVar[bool] = False

    @abstractmethod
    def connect(self, dsn: str, limits: Limits) -> Session:
        """Open a session."""

    @abstractmethod
    def quoted(self, table: Any) -> str:
        """A table's name in a statement."""

    def find_delayed(self, session: Session, location: Location) -> Any:
        """Which of the candidates is the delayed table."""
        return location.delayed

    @abstractmethod
    def check(self, session: Session, location: Location, delayed: Any) -> None:
        """Raise `ConfigError` for a session that cannot sweep, or for the first table that is
        missing, of another shape, or closed to this user.
        """

    def table_notices(
        self, session: Session, location: Location, delayed: Any
    ) -> Sequence[Problem]:
        """What is wrong with the delayed table although sweeps work, if a sweep should tell."""
        return ()

    @abstractmethod
    def estimate_rows(self, session: Session, table: Any) -> int:
        """About how many rows a table has."""

    # Until a task's session and `setup` exist once, each dialect makes its own.

    @abstractmethod
    def open_task(self, location: Location) -> Any:
        """A session for one slice."""

    @abstractmethod
    def open_changes(self, location: Location) -> Any:
        """A session for an operator's command."""

    @abstractmethod
    def open_messages(self, location: Location) -> Any:
        """A session for one message at a time."""

    @abstractmethod
    def set_up(self, location: Location) -> None:
        """Create the delayed table and the journal, where they are missing."""

    # A sweep's locks and its figures.

    @abstractmethod
    def lock(self, name: str) -> Values:
        """The values that name a session's lock."""

    def holder(self, statements: Session, name: str) -> str | None:
        """Who holds a session's lock, as a sentence's beginning; None: the server does not tell."""
        return None

    @abstractmethod
    def await_batches(
        self, statements: Session, source: str, sweep_id: UUID, *, waits: bool
    ) -> bool:
        """Let no other batch of a sweep begin until this transaction ends. Returns whether the
        sweep is still open and, unless it `waits` for them, no batch is in flight.
        """

    @abstractmethod
    def prune_attempts(self, statements: Session, source: str) -> int:
        """Drop the retry counters of messages that are gone; how many."""

    @abstractmethod
    def lateness(self, statements: Session, sweep_id: UUID) -> Lateness:
        """How late a sweep's messages were."""

    # Values.

    @abstractmethod
    def keys(self, keys: Iterable[str], name: str = "keys") -> Values:
        """Keys as the values of a statement that calls them `name`."""

    @abstractmethod
    def due_in(self, due: datetime | None) -> str:
        """A Due for a statement; of None, one before all others."""

    @abstractmethod
    def due_out(self, due: Any) -> datetime | None:
        """A Due, or another instant, that a statement returned."""

    @abstractmethod
    def moment(self, moment: datetime | None) -> object:
        """An instant for one of duesweep's own tables."""

    @abstractmethod
    def zoned(self, zone: str | None) -> Values:
        """The writers' zone, for statements that compare Dues with instants."""

    @abstractmethod
    def span(self, first: datetime | None, end: datetime | None, zone: str | None) -> Values:
        """The instants from `first` to before `end`; None: without a limit."""

    @abstractmethod
    def buckets(self, ends: Sequence[datetime], zone: str | None) -> Values:
        """The spans before, between and after these instants, by their numbers."""

    @abstractmethod
    def pausing(self, location: Location, pattern: str) -> list[object]:
        """A pattern of paused destinations, as statements test it in JSON."""

    @abstractmethod
    def bounds(
        self, kind: TableKind, since: datetime | None, firsts: Sequence[tuple[str, str]]
    ) -> str:
        """Each slice's number, and the (Due, key) from which and before which it goes: from `since`
        on, and from each of `firsts` on.
        """

    # Due.

    def zone(self, session: Session, location: Location) -> str | None:
        """The zone whose clock stored Dues show; None: UTC."""
        return None

    @abstractmethod
    def horizon(self, statements: Session, zone: str | None) -> Horizon:
        """What is due now by NServiceBus's own predicate."""

    @abstractmethod
    def stream(
        self,
        session: Session,
        location: Location,
        names: dict[str, str],
        seconds: float,
        *,
        is_ordered: bool = False,
    ) -> AbstractContextManager[Session]:
        """Statements that read many rows in pages, for which the server may take `seconds`, while
        `session` reads others. `is_ordered`: the first rows have to come quickly.
        """

    @abstractmethod
    def key(self, row: Any) -> str:
        """The key of a message in a row."""

    def lock_key(self, kind: TableKind, row: Any) -> str:
        """The text by which an operator's command finds and locks the message in a row."""
        return self.key(row)

    @abstractmethod
    def message(self, kind: TableKind, row: Any, attempts: int) -> Message:
        """The message in a row that was claimed, held or shown, with duesweep's own count of its
        failures.
        """


def numbered(bounds: Iterable[str]) -> str:
    """Slices as rows of a VALUES list: the number, and where each begins and ends."""
    spans = enumerate(pairwise(bounds))
    return ", ".join(f"({number}, {first}, {end})" for number, (first, end) in spans)
