"""How the stores on PostgreSQL keep a delayed message: each kind has a table of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from duesweep.core.message import Message
from duesweep_testing.builders import DelayedRow, message
from duesweep_testing.contract import JsonHeaders
from support.timeouts import POSTGRESQL_TABLE, destination_of, timeout_headers, timeout_of

if TYPE_CHECKING:
    from support.postgresql_server import PostgreSqlServer

# As NServiceBus stores it, evaluated in the writer's session: the server's default time zone.
_DUE_IN = "SELECT timestamptz(now() AT TIME ZONE 'UTC') + make_interval(secs => $1)"


@dataclass(frozen=True, slots=True)
class PostgreSqlRows:
    """The PostgreSQL transport's. All kinds have `key_text`, the expression for a key as text,
    `create`, what creates the table where `duesweep setup` does not, and `unreadable`, headers that
    are stored as they are and cannot be read. `message` is the expected result of a claim.
    """

    key_text: str = "id::text"
    create: str | None = None
    unreadable: Sequence[str] = JsonHeaders.unreadable

    def table(self, endpoint: str) -> str:
        return f"{endpoint}.Delayed"

    def due_in(self, server: "PostgreSqlServer", seconds: float) -> datetime:
        due: datetime = server.fetch(_DUE_IN, seconds)[0][0]
        return due

    def insert(
        self, server: "PostgreSqlServer", delayed: str, rows: Sequence[DelayedRow]
    ) -> list[DelayedRow]:
        values = [(row.key, row.headers, row.body, row.due) for row in rows]
        _copy(server, f"{delayed} (id, headers, body, due)", values)
        return list(rows)

    def reschedule(self, server: "PostgreSqlServer", delayed: str, key: str, due: datetime) -> None:
        server.execute(f"UPDATE {delayed} SET due = $1 WHERE id = $2", due, key)

    def stored_headers(self, row: DelayedRow) -> str:
        return row.headers

    def message(self, server: "PostgreSqlServer", row: DelayedRow, attempts: int) -> Message:
        return message(row, attempts)._replace(instant_us=_instant_us(server, row))


@dataclass(frozen=True, slots=True)
class PostgreSqlTimeoutRows:
    """SQL persistence's table of timeouts: Time is UTC's clock without a zone."""

    key_text: str = '"Id"::text'
    create: str | None = POSTGRESQL_TABLE
    unreadable: Sequence[str] = JsonHeaders.unreadable

    def table(self, endpoint: str) -> str:
        return f"{endpoint.replace('.', '_')}_TimeoutData"

    def due_in(self, server: "PostgreSqlServer", seconds: float) -> datetime:
        due: datetime = server.fetch("SELECT now() + make_interval(secs => $1)", seconds)[0][0]
        return due

    def insert(
        self, server: "PostgreSqlServer", delayed: str, rows: Sequence[DelayedRow]
    ) -> list[DelayedRow]:
        columns = '"Id", "Destination", "SagaId", "State", "Time", "Headers", "PersistenceVersion"'
        _copy(server, f"{delayed} ({columns})", [_timeout_values(row) for row in rows])
        return list(rows)

    def reschedule(self, server: "PostgreSqlServer", delayed: str, key: str, due: datetime) -> None:
        server.execute(
            f'UPDATE {delayed} SET "Time" = $1::timestamptz AT TIME ZONE \'UTC\' WHERE "Id" = $2',
            due,
            key,
        )

    def stored_headers(self, row: DelayedRow) -> str:
        return timeout_headers(row)

    def message(self, _: "PostgreSqlServer", row: DelayedRow, attempts: int) -> Message:
        return timeout_of(row, _destination(row), attempts)


KINDS: Mapping[str, Any] = {
    "postgresql": PostgreSqlRows(),
    "sql-persistence": PostgreSqlTimeoutRows(),
}


def _copy(server: "PostgreSqlServer", into: str, rows: Sequence[tuple[Any, ...]]) -> None:
    text = f"COPY {into} FROM STDIN".encode()
    with server.admin.cursor() as cursor, cursor.copy(text) as copy:
        for row in rows:
            copy.write_row(row)


def _instant_us(server: "PostgreSqlServer", row: DelayedRow) -> int | None:
    """The administrator's clock, as the writers', shows at Due the time of UTC's clock then."""
    if row.due_us is None:
        return None
    text = "SELECT (extract(epoch FROM $1::timestamptz::timestamp) * 1000000)::bigint"
    return int(server.fetch(text, row.due)[0][0])


def _destination(row: DelayedRow) -> str | None:
    """The row's destination, less the NUL that no column of text holds here."""
    destination = destination_of(row)
    return destination and destination.replace("\0", "")


def _timeout_values(row: DelayedRow) -> tuple[Any, ...]:
    due = row.due
    time = due.astimezone(UTC).replace(tzinfo=None) if isinstance(due, datetime) else due
    return (
        *(row.key, _destination(row), str(row.key), row.body, time),
        *(timeout_headers(row), "6.0.0"),
    )
