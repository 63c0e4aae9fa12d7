"""Kinds of delayed table: all that distinguishes them, as values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from duesweep.core.message import Message
from duesweep.drivers.statements import Session
from duesweep.stores.values import NewMessage

_KEY = "message_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableKind:
    """A kind of delayed table.

    `columns`: its columns and their types. `due`: the column with the Due. `names`: what statements
    call the columns (in braces).
    `table_names`: from the endpoint's name and `store.table_prefix`, the names that the table may
    have; `settings` are those that decide it.
    `read_message`: a message from its key, its Due and its instant in microseconds, its claimed
    row, and its failures so far. A destination of None is the endpoint's own queue, "" is no queue.
    `new_row`: from a message and the endpoint's name, the values of the statement `store`, without
    the Due; also without a key, if the table generates it.
    `create`: the statement that creates the table; None: duesweep never does.
    `pausing`: from a pattern of paused destinations, LIKE patterns (escape: a backslash) for the
    text `{pausable}`, which fit no message that is not paused; none if there can be none. Its other
    argument is the schema with which addresses in full have the names of queues; None: they have
    none in front of the name.
    `may_lack_due`: Due may be NULL. `has_destination`: the destination is a column, not a header.
    `has_own_queue`: the endpoint's own queue is a table in the same database.
    """

    columns: dict[str, str]
    due: str
    names: dict[str, str]
    table_names: Callable[[str, str | None], Sequence[str]]
    read_message: Callable[[str, int | None, int | None, Any, int], Message]
    new_row: Callable[[NewMessage, str], dict[str, object]]
    pausing: Callable[[str, str | None], Sequence[str]]
    store: str = "store_message"
    create: str | None = "create_delayed"
    settings: str = "store.endpoint, store.schema and store.delayed_table"
    may_lack_due: bool = False
    has_destination: bool = False
    has_own_queue: bool = True

    @property
    def advice(self) -> str:
        """What to do if there is no such table."""
        if self.create is None:
            return f"check {self.settings}; `setup` does not create it"
        return f"check {self.settings}, or create it with the command `setup`"


def delayed_tables(endpoint: str, prefix: str | None) -> Sequence[str]:  # noqa: ARG001 - other kinds need it
    """The name of the transport's table."""
    return [f"{endpoint}.Delayed"]


def store_row(statements: Session, kind: TableKind, values: Mapping[str, object]) -> str:
    """Store a row of these values; its key."""
    if _KEY in values:
        statements.execute(kind.store, **values)
        return str(values[_KEY])
    return str(statements.row(kind.store, **values)[0])
