"""What the operations need from a transport, for every database."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from duesweep.drivers.statements import Session
from duesweep.queues.base import Destination
from duesweep.queues.tables import Addresses


@dataclass(frozen=True, slots=True)
class QueueStatements:
    """The names of the statements that send to a queue table and receive from it."""

    send: str = "send"
    receive: str = "receive"


class QueueDialect(Protocol):
    """One session of a transport. Raises the `StoreError`s of the driver."""

    @property
    def addresses(self) -> Addresses:
        """How addresses are read."""
        ...

    @property
    def delayed(self) -> Destination | None:
        """The endpoint's delayed table; None if it is not in this database."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """A transaction; nested, a savepoint."""
        ...

    def named(self, tables: Mapping[str, Destination]) -> Session:
        """The session's statements, with these tables by the names that statements give them."""
        ...

    def create(self, name: str, role: str, table: Destination) -> None:
        """Run a statement that creates or alters `table`, under a lock. In the statement the
        table's name is `{role}`.
        """
        ...

    def columns(self, table: Destination) -> set[str]:
        """The names of a table's columns in lower case; none if there is no such table."""
        ...

    def statements_for(self, columns: set[str]) -> "QueueStatements":
        """The statements for a queue table with these columns."""
        ...

    def writers_zone(self) -> AbstractContextManager[None]:
        """A transaction in the time zone of the endpoints that write Due."""
        ...


class Transport(Protocol):
    """A database with an endpoint's queues. A value; no secrets in its repr."""

    @property
    def addresses(self) -> Addresses:
        """How addresses are read."""
        ...

    def script(self, names: Sequence[str], role: str, table: Destination) -> str:
        """The statements of these names as `QueueDialect.create` runs them, for an administrator.
        Connects to nothing.
        """
        ...

    def connect(self) -> AbstractContextManager[QueueDialect]:
        """A session of its own, closed at the end of the block."""
        ...
