"""Kinds of delayed table: all that distinguishes them, and their rows as messages.

The source of SQL persistence's names and columns is NServiceBus.Persistence.Sql, version 6 and
older.
"""
# ruff: noqa: ARG002 - no kind needs all that another one does

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import duesweep
from duesweep.core.address import Addresses
from duesweep.core.change import SAGA_ID
from duesweep.core.errors import MessageError, UnreadableHeadersError, make_storable
from duesweep.core.headers import (
    FORWARD_DESTINATION,
    Headers,
    read_json,
    read_xml,
    remove_forward_destination,
    set_forward_destination,
    split_properties,
    write_json,
    write_xml,
)
from duesweep.core.message import MESSAGE_ID, Address, Message
from duesweep.core.world import World
from duesweep.stores.forward import destination_like, forwarded_like, forwarded_to, headers_like
from duesweep.stores.messages import NewMessage

_LONGEST_KEY = 250
# In the lock key of a table whose keys are not indexed.
_SEPARATOR = "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableKind(ABC):
    """A kind of delayed table.

    `columns`: its columns and their types. `due`: the column with the Due. `names`: what statements
    call the columns (in braces). `index`: the name of the index on Due; empty: it is named after
    the table.
    `settings` decide the table's name.
    `lowest_key`: no key is lower. `has_indexed_key`: rows are found by their keys; False: by their
    Dues.
    `create`: the statement that creates the table; None: duesweep never does.
    `raise_counters`: the statement that raises the rows' own counters of failures; None: they have
    none, so that duesweep's own table counts.
    `may_lack_due`: Due may be NULL. `has_destination`: the destination is a column, not a header.
    `has_own_queue`: the endpoint's own queue is a table in the same database.
    `time_zone` "UTC": Due is a true instant, or the time of a clock in UTC. None: only where Due is
    written as the transport for PostgreSQL writes it, `timestamptz(now() AT TIME ZONE 'UTC')`,
    which depends on the writers' sessions (docs/decisions/plan.md).
    """

    columns: dict[str, str]
    due: str
    names: dict[str, str]
    lowest_key: str = str(UUID(int=0))
    index: str = ""
    store: str = "store_message"
    create: str | None = "create_delayed"
    settings: str = "store.endpoint, store.schema and store.delayed_table"
    raise_counters: str | None = None
    may_lack_due: bool = False
    has_destination: bool = False
    has_indexed_key: bool = True
    has_own_queue: bool = True
    time_zone: str | None = "UTC"

    @abstractmethod
    def table_names(self, endpoint: str, prefix: str | None) -> Sequence[str]:
        """The names that the table of an endpoint may have; `prefix` is `store.table_prefix`."""

    @abstractmethod
    def as_key(self, text: str) -> str | None:
        """A text as statements take a key; None if it cannot be one."""

    def lock_key(self, row: Any) -> str:
        """The text by which an operator's command finds and locks the message in a row."""
        key: str = row.message_key
        return key

    @abstractmethod
    def read_message(self, row: Any, attempts: int) -> Message:
        """The message in a row that was claimed, held or shown, with duesweep's own count of its
        failures. A destination of None is the endpoint's own queue, "" is no queue.
        """

    @abstractmethod
    def new_row(self, message: NewMessage, endpoint: str, world: World) -> dict[str, object]:
        """The values of the statement `store`, without the Due; also without a key, if the table
        generates it. `world`: where ids come from.
        """

    @abstractmethod
    def stored_headers(self, message: Message, stored: Any) -> tuple[str | None, str]:
        """The journal's copy of headers as they are stored: JSON (None if they cannot be read), and
        text.
        """

    @abstractmethod
    def pausing(self, pattern: str, addresses: Addresses) -> Sequence[str]:
        """LIKE patterns (escape: a backslash) for the text `{pausable}`, which fit no message that
        is not paused; none if there can be none.
        """

    def address_of(self, forward: str) -> Address:
        """The address in the plan's `forward`; `UnusualBatchError` if it cannot be read there."""
        return forward

    @property
    def advice(self) -> str:
        """What to do if there is no such table."""
        if self.create is None:
            return f"check {self.settings}; `setup` does not create it"
        return f"check {self.settings}, or create it with the command `setup`"


def _as_uuid(text: str) -> str | None:
    """As the server writes it."""
    with suppress(ValueError):
        return str(UUID(text))
    return None


class _JsonTable(TableKind):
    """Headers are JSON."""

    def stored_headers(self, message: Message, stored: str | None) -> tuple[str | None, str]:
        text = stored or ""
        return (None if isinstance(message.headers, MessageError) else text), text


class TransportTable(_JsonTable):
    """A table of the SQL transports: the destination is a header."""

    def table_names(self, endpoint: str, prefix: str | None) -> Sequence[str]:
        return [f"{endpoint}.Delayed"]

    def read_message(self, row: Any, attempts: int) -> Message:
        """One whose headers cannot be read has the reason in their place."""
        text = row.headers
        try:
            headers = read_json(text)
        except UnreadableHeadersError as error:
            return _message(row, error, text or "", None, attempts)
        destination = headers.get(FORWARD_DESTINATION)
        assert text is not None  # else it could not be read
        if FORWARD_DESTINATION in headers:
            text = remove_forward_destination(text)
        return _message(row, headers, text, destination, attempts)

    def new_row(self, message: NewMessage, endpoint: str, world: World) -> dict[str, object]:
        """The table gives it a key."""
        text = message.stored_headers
        if text is None:
            headers = set_forward_destination(message.headers, message.destination)
            text = write_json(headers)
        return {"headers": text, "body": message.body}

    address_of = staticmethod(forwarded_to)


class PostgreSqlTransportTable(TransportTable):
    """Keys are UUIDs."""

    as_key = staticmethod(_as_uuid)
    pausing = staticmethod(forwarded_like)


class SqlServerTransportTable(TransportTable):
    """Keys are row versions, without an index: so the Due, to the tick, leads to a row."""

    def as_key(self, text: str) -> str | None:
        return text if re.fullmatch(r"-?[0-9]{1,18}", text) else None

    def lock_key(self, row: Any) -> str:
        return lock_key(row.due, row.message_key)

    pausing = staticmethod(headers_like)


class MsmqTable(TableKind):
    """The table of MSMQ's delayed message store: headers are XML, the destination is a column."""

    def table_names(self, endpoint: str, prefix: str | None) -> Sequence[str]:
        """The documentation has the first, the code of the transport's later versions takes the
        second.
        """
        return [f"{endpoint}.delayed", f"{endpoint}.timeouts"]

    def as_key(self, text: str) -> str | None:
        return text if 0 < len(text) <= _LONGEST_KEY else None

    def read_message(self, row: Any, attempts: int) -> Message:
        """Its headers travel as JSON; the row counts its failures."""
        # If the column is NULL: an address that names no queue, not the endpoint's own one.
        destination = row.destination or ""
        try:
            headers, _ = split_properties(read_xml(row.headers))
        except UnreadableHeadersError as error:
            return _message(row, error, _shown(row.headers), destination, row.attempts)
        return _message(row, headers, write_json(headers), destination, row.attempts)

    def new_row(self, message: NewMessage, endpoint: str, world: World) -> dict[str, object]:
        """The message's id is its key, as the transport has it; one without gets a new one."""
        text = message.stored_headers
        return {
            "message_key": message.headers.get(MESSAGE_ID) or str(world.new_id()),
            "destination": message.destination,
            "headers": write_xml(message.headers) if text is None else text.encode(),
            "body": message.body,
        }

    def stored_headers(self, message: Message, stored: bytes | None) -> tuple[str | None, str]:
        is_read = not isinstance(message.headers, MessageError)
        return (message.headers_text if is_read else None), _shown(stored)

    pausing = staticmethod(destination_like)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutTable(_JsonTable):
    """Timeouts of SQL persistence: the destination is a column."""

    due: str = "Time"
    create: str | None = None
    settings: str = "store.endpoint, store.table_prefix and store.schema"
    store: str = "store_timeout"
    may_lack_due: bool = True
    has_destination: bool = True
    has_own_queue: bool = False

    def table_names(self, endpoint: str, prefix: str | None) -> Sequence[str]:
        """Without a prefix of its own that is made of the endpoint's name."""
        if prefix is None:
            prefix = endpoint.replace(".", "_") + "_"
        return [f"{prefix}TimeoutData"]

    def read_message(self, row: Any, attempts: int) -> Message:
        """Its headers are sent unchanged."""
        # NULL is an address that names no queue, and not the endpoint's own queue.
        destination, text = row.destination or "", row.headers or ""
        try:
            headers = read_json(row.headers)
        except UnreadableHeadersError as error:
            return _message(row, error, text, destination, attempts)
        return _message(row, headers, text, destination, attempts)

    def new_row(self, message: NewMessage, endpoint: str, world: World) -> dict[str, object]:
        """Of text, if possible."""
        text = message.stored_headers
        return {
            "message_key": str(world.new_id()),
            # Of a message that had none, which no queue is.
            "destination": endpoint if message.destination is None else message.destination or None,
            "saga_id": _saga_id(message.headers.get(SAGA_ID)),
            "body": message.body,
            "headers": write_json(message.headers) if text is None else text,
            "version": f"duesweep {duesweep.__version__}",
        }

    pausing = staticmethod(destination_like)


class PostgreSqlTimeoutTable(TimeoutTable):
    """Keys are UUIDs, however they are written."""

    as_key = staticmethod(_as_uuid)


class SqlServerTimeoutTable(TimeoutTable):
    """Keys are UUIDs, as they are written."""

    def as_key(self, text: str) -> str | None:
        pattern = r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
        return text if re.fullmatch(pattern, text) else None


def _message(  # noqa: PLR0917 - called for each row
    row: Any,
    headers: Headers | MessageError,
    text: str,
    destination: str | None,
    attempts: int,
) -> Message:
    key, due_us, instant_us = row.message_key, row.due_us, row.instant_us
    return Message(key, due_us, headers, text, row.body, destination, attempts, instant_us)


def _shown(stored: bytes | None) -> str:
    """Stored headers for people, whatever bytes they are."""
    return make_storable((stored or b"").decode("utf-8", "backslashreplace"))


def _saga_id(header: str | None) -> str:
    """The saga that a timeout is for, as SQL persistence takes it out of the headers. Zeros for a
    timeout of no saga: it cannot read NULL.
    """
    try:
        return str(UUID(header or ""))
    except ValueError:
        return str(UUID(int=0))


def lock_key(due: str | None, key: str) -> str:
    """The lock key where keys are not indexed: the message's Due, and its key."""
    return f"{due or ''}{_SEPARATOR}{key}"


def split_lock_key(text: str) -> tuple[str, str]:
    """The Due and the key in such a lock key."""
    due, _, key = text.partition(_SEPARATOR)
    return due, key


# `names`: double braces are a fragment of the dialect. The alias of the delayed table is `d` on
# PostgreSQL and `m` on SQL Server, where a name needs one. `destination` is the expression for it,
# or NULL; `pausable` is the text that `pausing` tests.

_POSTGRESQL_TRANSPORT = PostgreSqlTransportTable(
    columns={
        "id": "uuid",
        "headers": "text",
        "body": "bytea",
        "due": "timestamp with time zone",
    },
    due="due",
    time_zone=None,
    names={
        "id": "id",
        "headers": "headers",
        "body": "body",
        "due": "due",
        "due_type": "timestamptz",
        # From an instant to the column's value, and back.
        "utc": "",
        "destination": "NULL",
        "pausable": "{{forwarded_to}}",
        "forward": "{{forward}}",
        "planned_forward": "{{planned_forward}}",
    },
)

_POSTGRESQL_TIMEOUTS = PostgreSqlTimeoutTable(
    columns={
        "Id": "uuid",
        "Destination": "character varying",
        "SagaId": "uuid",
        "State": "bytea",
        "Time": "timestamp without time zone",
        "Headers": "text",
        "PersistenceVersion": "character varying",
    },
    names={
        "id": '"Id"',
        "headers": '"Headers"',
        "body": '"State"',
        "due": '"Time"',
        "due_type": "timestamp",
        "utc": " AT TIME ZONE 'UTC'",
        "destination": 'd."Destination"',
        "pausable": """convert_to(d."Destination", getdatabaseencoding())""",
        # NULL is an address that names no queue.
        "forward": """coalesce(d."Destination", '')""",
        "planned_forward": "k.forward",
    },
)

POSTGRESQL_KINDS = {"postgresql": _POSTGRESQL_TRANSPORT, "sql-persistence": _POSTGRESQL_TIMEOUTS}

_SQL_SERVER_TRANSPORT = SqlServerTransportTable(
    columns={
        "RowVersion": "bigint",
        "Headers": "nvarchar",
        "Body": "varbinary",
        "Due": "datetime",
    },
    due="Due",
    has_indexed_key=False,
    lowest_key=str(-(2**63)),
    index="Index_Due",
    names={
        "due": "[Due]",
        "key": "[RowVersion]",
        "key_type": "bigint",
        "key_text": "CAST(m.[RowVersion] AS nvarchar(250))",
        "collate": "",
        "body": "[Body]",
        "destination": "CONVERT(nvarchar(200), NULL)",
        "pausable": "m.[Headers]",
        "retry_count": "0",
    },
)

_MSMQ = MsmqTable(
    columns={
        "Id": "nvarchar",
        "Destination": "nvarchar",
        "State": "varbinary",
        "Time": "datetime",
        "Headers": "varbinary",
        "RetryCount": "int",
    },
    due="Time",
    lowest_key="",
    store="store_msmq_message",
    create="create_msmq_delayed",
    index="Index_Time",
    raise_counters="raise_retry_counts",
    may_lack_due=True,
    has_destination=True,
    has_own_queue=False,
    names={
        "due": "[Time]",
        "key": "[Id]",
        "key_type": "nvarchar(250)",
        "key_text": "CAST(m.[Id] AS nvarchar(250))",
        # Whatever the column's own is.
        "collate": " COLLATE DATABASE_DEFAULT",
        "body": "[State]",
        "destination": "m.[Destination]",
        "pausable": "m.[Destination]",
        "retry_count": "m.[RetryCount]",
    },
)

_SQL_SERVER_TIMEOUTS = SqlServerTimeoutTable(
    columns={
        "Id": "uniqueidentifier",
        "Destination": "nvarchar",
        "SagaId": "uniqueidentifier",
        "State": "varbinary",
        "Time": "datetime",
        "Headers": "nvarchar",
        "PersistenceVersion": "varchar",
    },
    index="Index_Time",
    names={
        "due": "[Time]",
        "key": "[Id]",
        "key_type": "uniqueidentifier",
        # Only the server writes it in capitals.
        "key_text": "LOWER(CAST(m.[Id] AS nvarchar(250)))",
        "collate": "",
        "body": "[State]",
        "destination": "m.[Destination]",
        "pausable": "m.[Destination]",
        "retry_count": "0",
    },
)

SQL_SERVER_KINDS = {
    "sqlserver": _SQL_SERVER_TRANSPORT,
    "msmq": _MSMQ,
    "sql-persistence": _SQL_SERVER_TIMEOUTS,
}
