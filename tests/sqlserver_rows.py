"""How the stores on SQL Server keep a delayed message: each kind has a table of its own."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

import pyodbc
from sqlserver_server import SqlServerDatabase
from timeouts import SQL_SERVER_TABLE, destination_of, timeout_headers, timeout_of

from duesweep.core.headers import json as headers_json
from duesweep.core.headers import xml as headers_xml
from duesweep.core.message import Message
from duesweep.errors import UnreadableHeadersError, make_storable
from duesweep.testing.builders import DelayedRow, message

# A Due goes in and comes out as text: as parameters and results, fractions of seconds are lost on
# some servers. As datetime2(7) the text of a `datetime` is exact: one tick of 1/300 s, no other.
AS_DUE = "CONVERT(datetime, CONVERT(datetime2(7), ?, 121))"

# Where arrays of parameters are worth it: the driver reserves room for the longest row in each.
_MANY = 100
_TEXT = (pyodbc.SQL_WVARCHAR, 0, 0)
_BYTES = (pyodbc.SQL_VARBINARY, 0, 0)


class StoredRows(Protocol):
    """One kind of delayed table. `key_text` is the expression for a key as text, `create` what
    creates the table where `duesweep setup` does not.
    """

    key: str
    key_text: str
    due: str
    create: str | None

    def table(self, endpoint: str) -> str:
        """The name of an endpoint's table."""
        ...

    def insert(
        self, database: SqlServerDatabase, delayed: str, rows: Sequence[DelayedRow]
    ) -> list[DelayedRow]:
        """Store these rows; the same with the keys and Dues that they have in the table."""
        ...

    def stored_headers(self, row: DelayedRow) -> str:
        """The text of the row's headers, as the table has them."""
        ...

    def message(self, row: DelayedRow, attempts: int) -> Message:
        """The message that a claim of the row has to return."""
        ...


@dataclass(frozen=True, slots=True)
class TransportRows:
    """The SQL Server transport's: the server gives out the keys."""

    key: str = "RowVersion"
    key_text: str = "RowVersion"
    due: str = "Due"
    create: str | None = None

    def table(self, endpoint: str) -> str:
        return f"{endpoint}.Delayed"

    def insert(
        self, database: SqlServerDatabase, delayed: str, rows: Sequence[DelayedRow]
    ) -> list[DelayedRow]:
        last = database.fetch(f"SELECT COALESCE(MAX(RowVersion), 0) AS seen FROM {delayed}")[0].seen
        values = [(row.headers, row.body, due_text(row.due)) for row in rows]
        insert = f"INSERT INTO {delayed} (Headers, Body, Due) VALUES (?, ?, {AS_DUE})"
        _insert_many(database, insert, [_TEXT, _BYTES, _TEXT], values)
        stored = database.fetch(
            f"SELECT RowVersion AS rv, {shown('Due')} AS due FROM {delayed}"
            " WHERE RowVersion > ? ORDER BY RowVersion",
            last,
        )
        return [
            replace(row, key=str(found.rv), due=due_of(found.due))
            for row, found in zip(rows, stored, strict=True)
        ]

    def stored_headers(self, row: DelayedRow) -> str:
        return row.headers

    def message(self, row: DelayedRow, attempts: int) -> Message:
        return message(row, attempts)


@dataclass(frozen=True, slots=True)
class MsmqRows:
    """The MSMQ transport's delayed message store: XML, with the destination in a column.

    A builder's row is written in it by its meaning; headers that are no JSON go in as they are.
    """

    key: str = "Id"
    key_text: str = "Id"
    due: str = "Time"
    create: str | None = None

    def table(self, endpoint: str) -> str:
        return f"{endpoint}.delayed"

    def insert(
        self, database: SqlServerDatabase, delayed: str, rows: Sequence[DelayedRow]
    ) -> list[DelayedRow]:
        values = [
            (row.key, destination_of(row), row.body, due_text(row.due), xml_of(row)) for row in rows
        ]
        insert = (
            f"INSERT INTO {delayed} (Id, Destination, State, Time, Headers)"
            f" VALUES (?, ?, ?, {AS_DUE}, ?)"
        )
        _insert_many(database, insert, [_TEXT, _TEXT, _BYTES, _TEXT, _BYTES], values)
        return _as_stored(self, database, delayed, rows)

    def stored_headers(self, row: DelayedRow) -> str:
        return make_storable(xml_of(row).decode("utf-8", "backslashreplace"))

    def message(self, row: DelayedRow, attempts: int) -> Message:
        stored, destination = xml_of(row), destination_of(row) or ""
        try:
            headers, _ = headers_xml.split(headers_xml.read(stored))
        except UnreadableHeadersError as error:
            text = self.stored_headers(row)
            return Message(row.key, row.due_us, error, text, row.body, destination, attempts)
        text = headers_json.write(headers)
        return Message(row.key, row.due_us, headers, text, row.body, destination, attempts)


@dataclass(frozen=True, slots=True)
class TimeoutRows:
    """SQL persistence's table of timeouts."""

    key: str = "Id"
    key_text: str = "LOWER(CONVERT(nvarchar(36), Id))"
    due: str = "Time"
    create: str | None = SQL_SERVER_TABLE

    def table(self, endpoint: str) -> str:
        return f"{endpoint.replace('.', '_')}_TimeoutData"

    def insert(
        self, database: SqlServerDatabase, delayed: str, rows: Sequence[DelayedRow]
    ) -> list[DelayedRow]:
        values = [
            (row.key, destination_of(row), row.body, due_text(row.due), timeout_headers(row))
            for row in rows
        ]
        insert = (
            f"INSERT INTO {delayed} (Id, Destination, State, Time, Headers, PersistenceVersion)"
            f" VALUES (CONVERT(uniqueidentifier, ?), ?, ?, {AS_DUE}, ?, '6.0.0')"
        )
        _insert_many(database, insert, [_TEXT, _TEXT, _BYTES, _TEXT, _TEXT], values)
        return _as_stored(self, database, delayed, rows)

    def stored_headers(self, row: DelayedRow) -> str:
        return timeout_headers(row)

    def message(self, row: DelayedRow, attempts: int) -> Message:
        return timeout_of(row, destination_of(row), attempts)


def _as_stored(
    kind: StoredRows, database: SqlServerDatabase, delayed: str, rows: Sequence[DelayedRow]
) -> list[DelayedRow]:
    """The rows with the Dues that they have in the table."""
    text = f"SELECT {kind.key_text} AS message_key, {shown('Time')} AS due FROM {delayed}"
    by_key = {found.message_key: found.due for found in database.fetch(text)}
    return [replace(row, due=due_of(by_key[row.key])) for row in rows]


def xml_of(row: DelayedRow) -> bytes:
    """The row's headers as MSMQ's store has them."""
    try:
        headers = dict(headers_json.read(row.headers))
    except UnreadableHeadersError:
        return row.headers.encode("utf-8", "surrogateescape")
    headers.pop(headers_json.FORWARD_DESTINATION, None)
    return headers_xml.write(headers)


def shown(due: str) -> str:
    """The expression for the text of the Due that the expression `due` gives."""
    return f"CONVERT(varchar(27), CONVERT(datetime2(7), {due}), 121)"


def due_text(due: object) -> str:
    """Due as `AS_DUE` takes it."""
    assert isinstance(due, datetime), "Due is never infinite here"
    return due.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


def due_of(text: str) -> datetime:
    """The Due that `shown` shows."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _insert_many(
    database: SqlServerDatabase, text: str, sizes: list[Any], rows: Sequence[tuple[Any, ...]]
) -> None:
    if not rows:
        return
    cursor = database.admin.cursor()
    # Said beforehand: a body of None would go out as text.
    cursor.setinputsizes(sizes)
    cursor.fast_executemany = len(rows) > _MANY
    cursor.executemany(text, rows)
    cursor.close()
