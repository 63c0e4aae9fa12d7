"""How the stores on SQL Server keep a delayed message: each kind has a table of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from duesweep.core.address import bracket_name
from duesweep.core.errors import UnreadableHeadersError, make_storable
from duesweep.core.headers import (
    FORWARD_DESTINATION,
    read_json,
    read_xml,
    split_properties,
    write_json,
    write_xml,
)
from duesweep.core.message import Message
from duesweep_testing.builders import DelayedRow, message
from duesweep_testing.contract import JsonHeaders
from support.timeouts import SQL_SERVER_TABLE, destination_of, timeout_headers, timeout_of

# A Due goes in and comes out as text: as parameters and results, fractions of seconds are lost on
# some servers. As datetime2(7) the text of a `datetime` is exact: one tick of 1/300 s, no other.
AS_DUE = "CONVERT(datetime, CONVERT(datetime2(7), ?, 121))"

if TYPE_CHECKING:
    from support.sqlserver_database import SqlServerDatabase
    from support.sqlserver_server import SqlServer

# From this number arrays of parameters are worth it: the driver reserves room for the longest row
# in each.
_MANY = 100
# ODBC's SQL_WVARCHAR and SQL_VARBINARY.
_TEXT, _BYTES = (-9, 0, 0), (-3, 0, 0)
_NOT_XML = (
    "<",
    "[]",
    "<ArrayOfHeaderInfo>",
    "<Headers />",
    "\udcff\udcfe",
    "<!DOCTYPE x><ArrayOfHeaderInfo />",
)


@dataclass(frozen=True, slots=True)
class _KeyAndDue:
    """Common to all kinds: the server's clock is UTC's."""

    key_text: str
    due: str = "Time"
    create: str | None = None
    unreadable: Sequence[str] = JsonHeaders.unreadable

    def due_in(self, server: "SqlServer", seconds: float) -> datetime:
        return server.time() + timedelta(seconds=seconds)

    def reschedule(self, server: "SqlServer", delayed: str, key: str, due: datetime) -> None:
        server.execute(
            f"UPDATE {delayed} SET {bracket_name(self.due)} = {AS_DUE} WHERE {self.key_text} = ?",
            due_text(due),
            key,
        )


@dataclass(frozen=True, slots=True)
class TransportRows(_KeyAndDue):
    """The SQL Server transport's: the server gives out the keys."""

    key_text: str = "RowVersion"
    due: str = "Due"

    def table(self, endpoint: str) -> str:
        return f"{endpoint}.Delayed"

    def insert(
        self, server: "SqlServer", delayed: str, rows: Sequence[DelayedRow]
    ) -> list[DelayedRow]:
        database = server.database
        last = database.fetch(f"SELECT COALESCE(MAX(RowVersion), 0) AS seen FROM {delayed}")[0].seen
        values = [(row.headers, row.body, due_text(row.due)) for row in rows]
        insert = f"INSERT INTO {delayed} (Headers, Body, Due) VALUES (?, ?, {AS_DUE})"
        # In one transaction: a watcher would take them before their keys are read.
        with database.committed_at_once() as admin:
            _insert_many(database, insert, [_TEXT, _BYTES, _TEXT], values)
            stored = admin.execute(
                f"SELECT RowVersion AS rv, {shown('Due')} AS due FROM {delayed}"
                " WHERE RowVersion > ? ORDER BY RowVersion",
                last,
            ).fetchall()
        return [
            replace(row, key=str(found.rv), due=due_of(found.due))
            for row, found in zip(rows, stored, strict=True)
        ]

    def stored_headers(self, row: DelayedRow) -> str:
        return row.headers

    def message(self, _: "SqlServer", row: DelayedRow, attempts: int) -> Message:
        return _with_instant(message(row, attempts))


@dataclass(frozen=True, slots=True)
class MsmqRows(_KeyAndDue):
    """The MSMQ transport's delayed message store: XML, with the destination in a column.

    A builder's row is written in it by its meaning; headers that are no JSON go in as they are.
    """

    key_text: str = "Id"
    unreadable: Sequence[str] = _NOT_XML

    def table(self, endpoint: str) -> str:
        return f"{endpoint}.delayed"

    def insert(
        self, server: "SqlServer", delayed: str, rows: Sequence[DelayedRow]
    ) -> list[DelayedRow]:
        _skip_nul(server, rows)
        values = [
            (row.key, destination_of(row), row.body, due_text(row.due), xml_of(row)) for row in rows
        ]
        insert = (
            f"INSERT INTO {delayed} (Id, Destination, State, Time, Headers)"
            f" VALUES (?, ?, ?, {AS_DUE}, ?)"
        )
        _insert_many(server.database, insert, [_TEXT, _TEXT, _BYTES, _TEXT, _BYTES], values)
        return _as_stored(self, server.database, delayed, rows)

    def stored_headers(self, row: DelayedRow) -> str:
        return make_storable(xml_of(row).decode("utf-8", "backslashreplace"))

    def message(self, _: "SqlServer", row: DelayedRow, attempts: int) -> Message:
        stored, destination = xml_of(row), destination_of(row) or ""
        try:
            headers = split_properties(read_xml(stored))[0]
        except UnreadableHeadersError as error:
            text = self.stored_headers(row)
            return _with_instant(
                Message(row.key, row.due_us, error, text, row.body, destination, attempts)
            )
        text = write_json(headers)
        return _with_instant(
            Message(row.key, row.due_us, headers, text, row.body, destination, attempts)
        )


@dataclass(frozen=True, slots=True)
class TimeoutRows(_KeyAndDue):
    """SQL persistence's table of timeouts."""

    key_text: str = "LOWER(CONVERT(nvarchar(36), Id))"
    create: str | None = SQL_SERVER_TABLE

    def table(self, endpoint: str) -> str:
        return f"{endpoint.replace('.', '_')}_TimeoutData"

    def insert(
        self, server: "SqlServer", delayed: str, rows: Sequence[DelayedRow]
    ) -> list[DelayedRow]:
        _skip_nul(server, rows)
        values = [
            (row.key, destination_of(row), row.body, due_text(row.due), timeout_headers(row))
            for row in rows
        ]
        insert = (
            f"INSERT INTO {delayed} (Id, Destination, State, Time, Headers, PersistenceVersion)"
            f" VALUES (CONVERT(uniqueidentifier, ?), ?, ?, {AS_DUE}, ?, '6.0.0')"
        )
        _insert_many(server.database, insert, [_TEXT, _TEXT, _BYTES, _TEXT, _TEXT], values)
        return _as_stored(self, server.database, delayed, rows)

    def stored_headers(self, row: DelayedRow) -> str:
        return timeout_headers(row)

    def message(self, _: "SqlServer", row: DelayedRow, attempts: int) -> Message:
        return _with_instant(timeout_of(row, destination_of(row), attempts))


KINDS: Mapping[str, Any] = {
    "sqlserver": TransportRows(),
    "msmq": MsmqRows(),
    "sql-persistence": TimeoutRows(),
}


def _with_instant(found: Message) -> Message:
    """Stored times are UTC."""
    return found._replace(instant_us=found.due_us)


def _skip_nul(server: "SqlServer", rows: Sequence[DelayedRow]) -> None:
    has_nul = any("\0" in (destination_of(row) or "") for row in rows)
    if has_nul and server.stand_in is not None:
        pytest.skip(server.unsupported("holds no NUL in a column of text"))


def _as_stored(
    kind: _KeyAndDue, database: "SqlServerDatabase", delayed: str, rows: Sequence[DelayedRow]
) -> list[DelayedRow]:
    """The rows with the Dues that they have in the table."""
    text = f"SELECT {kind.key_text} AS message_key, {shown('Time')} AS due FROM {delayed}"
    by_key = {found.message_key: found.due for found in database.fetch(text)}
    return [replace(row, due=due_of(by_key[row.key])) for row in rows]


def xml_of(row: DelayedRow) -> bytes:
    """The row's headers as MSMQ's store has them."""
    try:
        headers = dict(read_json(row.headers))
    except UnreadableHeadersError:
        return row.headers.encode("utf-8", "surrogateescape")
    headers.pop(FORWARD_DESTINATION, None)
    return write_xml(headers)


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
    database: "SqlServerDatabase", text: str, sizes: list[Any], rows: Sequence[tuple[Any, ...]]
) -> None:
    if not rows:
        return
    cursor = database.admin.cursor()
    # Said beforehand: a body of None would go out as text.
    cursor.setinputsizes(sizes)
    cursor.fast_executemany = len(rows) > _MANY
    cursor.executemany(text, rows)
    cursor.close()
