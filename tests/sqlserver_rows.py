"""How the stores on SQL Server keep a delayed message: the SQL transport's, and MSMQ's."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

import pyodbc
from sqlserver_server import SqlServerDatabase

from duesweep.errors import UnreadableHeadersError, storable
from duesweep.headers import json as headers_json
from duesweep.headers import xml as headers_xml
from duesweep.message import Message
from duesweep.testing.builders import DelayedRow, message

# A Due goes in and comes out as text: as parameters and results, fractions of seconds are lost on
# some servers. As datetime2(7) the text of a `datetime` is exact: one tick of 1/300 s, no other.
AS_DUE = "CONVERT(datetime, CONVERT(datetime2(7), ?, 121))"

# Where nothing can be read, the destination column still has one.
UNREADABLE_DESTINATION = "Billing"
# Where arrays of parameters are worth it: the driver reserves room for the longest row in each.
_MANY = 100
_TEXT = (pyodbc.SQL_WVARCHAR, 0, 0)
_BYTES = (pyodbc.SQL_VARBINARY, 0, 0)


class StoredRows(Protocol):
    """One kind of delayed table."""

    table: str
    key: str
    due: str

    def insert(
        self, database: SqlServerDatabase, delayed: str, rows: Sequence[DelayedRow]
    ) -> list[DelayedRow]:
        """Store these rows; the same with the keys and Dues that they have in the table."""
        ...

    def stored_headers(self, row: DelayedRow) -> str:
        """The text of the row's headers, as the table has them."""
        ...

    def message(self, row: DelayedRow, attempts: int) -> Message:
        """What a claim of the row has to return."""
        ...


@dataclass(frozen=True, slots=True)
class TransportRows:
    """The SQL Server transport's: the server gives out the keys."""

    table: str = "Delayed"
    key: str = "RowVersion"
    due: str = "Due"

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

    table: str = "delayed"
    key: str = "Id"
    due: str = "Time"

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
        dues = database.fetch(f"SELECT Id, {shown('Time')} AS due FROM {delayed}")
        by_key = {found.Id: found.due for found in dues}
        return [replace(row, due=due_of(by_key[row.key])) for row in rows]

    def stored_headers(self, row: DelayedRow) -> str:
        return storable(xml_of(row).decode("utf-8", "backslashreplace"))

    def message(self, row: DelayedRow, attempts: int) -> Message:
        stored, destination = xml_of(row), destination_of(row) or ""
        try:
            headers, _ = headers_xml.split(headers_xml.read(stored))
        except UnreadableHeadersError as error:
            text = self.stored_headers(row)
            return Message(row.key, row.due_us, error, text, row.body, destination, attempts)
        text = headers_json.write(headers)
        return Message(row.key, row.due_us, headers, text, row.body, destination, attempts)


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


def destination_of(row: DelayedRow) -> str | None:
    """The row's destination; None is the endpoint itself."""
    try:
        return headers_json.read(row.headers).get(headers_json.FORWARD_DESTINATION)
    except UnreadableHeadersError:
        return UNREADABLE_DESTINATION


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
