"""What differs between the servers and the tables in which an endpoint's messages wait."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, ClassVar, Protocol

from duesweep.core.message import Message
from duesweep_testing.builders import DelayedRow
from duesweep_testing.contract import Abilities
from support.recordings import QueueRow


class StoredRows(Protocol):
    """How one kind of delayed table keeps messages. `key_text` is the expression for a key as text,
    `create` what creates the table where `duesweep setup` does not; `unreadable` are headers that
    are stored as they are and cannot be read.
    """

    @property
    def key_text(self) -> str: ...

    @property
    def create(self) -> str | None: ...

    @property
    def unreadable(self) -> Sequence[str]: ...

    def table(self, endpoint: str) -> str:
        """What the table of an endpoint is called."""
        ...

    def due_in(self, server: Any, seconds: float) -> datetime:
        """The Due that would be stored for a message that comes due in `seconds`."""
        ...

    def insert(self, server: Any, delayed: str, rows: Sequence[DelayedRow]) -> list[DelayedRow]:
        """Store these rows; the same with the keys and Dues that they have in the table."""
        ...

    def reschedule(self, server: Any, delayed: str, key: str, due: datetime) -> None:
        """Give a row another Due."""
        ...

    def stored_headers(self, row: DelayedRow) -> str:
        """The text of the row's headers, as the table has them."""
        ...

    def message(self, server: Any, row: DelayedRow, attempts: int, /) -> Message:
        """What a claim of the row has to return."""
        ...


class EndpointServer(Protocol):
    """What differs between the servers. `settings` are those of the configuration, `past` is the
    expression for a moment ago, `counter_key` that for the key of a retry counter as text.
    `unreached` is the dsn of a database `nothing` on a port where nothing listens, `absent_key` a
    message key that is never given out.
    """

    kinds: ClassVar[Mapping[str, StoredRows]]
    settings: ClassVar[Mapping[str, object]]
    past: ClassVar[str]
    counter_key: ClassVar[str]
    unreached: ClassVar[str]
    absent_key: ClassVar[str]

    @property
    def dsn(self) -> str: ...

    @property
    def abilities(self) -> Abilities: ...

    def addresses(self, endpoint: str, schema: str) -> Any:
        """How an endpoint reads addresses."""
        ...

    def sql(self, schema: str, table: str) -> str:
        """A table of this database, quoted."""
        ...

    def sql_within(self, schema: str, table: str) -> str:
        """The same without the database, as GRANT and DROP INDEX take it."""
        ...

    def user(self, suffix: str) -> AbstractContextManager[tuple[str, str]]:
        """A login of the test's own that may do nothing yet: its dsn, and its name, quoted."""
        ...

    def quoted(self, table: Any) -> str:
        """What an address was read as, quoted."""
        ...

    def fetch(self, text: str, *values: object) -> list[Any]:
        """The rows of a query, with their columns as attributes."""
        ...

    def execute(self, text: str, *values: object) -> object:
        """Run a statement, committed at once."""
        ...

    def create_schema(self, schema: str) -> None:
        """Create a schema in this database where it is missing."""
        ...

    def create_queue(self, table: Any) -> None:
        """Create a queue table and its schema."""
        ...

    def queue_rows(self, table: Any) -> list[QueueRow]:
        """What lies in a queue table, in the order of its arrival."""
        ...

    def time(self) -> datetime:
        """The server's time."""
        ...

    def claim_keys(self, rows: Iterable[DelayedRow]) -> list[str]:
        """A claim key for each of these rows."""
        ...

    def journal(self, table: str, sweep_id: object) -> list[Any]:
        """The rows of a sweep in the journal, in order."""
        ...

    def entry_values(self, row: Any) -> dict[str, Any]:
        """A row of the journal with values as PostgreSQL's have them."""
        ...

    def refusal(self, body: bytes) -> str:
        """The condition of a CHECK that refuses this body."""
        ...

    def locked(self, table: Any) -> AbstractContextManager[None]:
        """A session of its own keeps all others from writing to a queue table."""
        ...
