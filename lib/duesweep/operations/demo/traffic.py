"""Delayed messages shaped like those recorded from NServiceBus's PostgreSQL transport.

Headers are a JSON object of about 14 members with `/` escaped, and the forward destination at the
end. A body is JSON of a few hundred bytes.
"""

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

from duesweep.core.address import TableName
from duesweep.core.headers import FORWARD_DESTINATION, Headers, write_json
from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID
from duesweep.core.policy import DEFAULT_TIMEOUTS
from duesweep.drivers.postgresql.session import connect

ENDPOINT = "Sales.Orders"
UNKNOWN_QUEUE = "Nowhere"
# The forms of an address: a name, both parts quoted, schema and name. None: no such header, which
# means the endpoint's own queue.
DESTINATIONS = ("Billing", '"public"."Shipping"', "Ship.ping", None)

_TYPES = {
    "Billing": "Sales.Messages.SendReminder",
    '"public"."Shipping"': "Sales.Messages.ReleaseOrder",
    "Ship.ping": "Sales.Messages.CheckDelivery",
    None: "Sales.Messages.CancelOrder",
}
_SEED = 4
_OTHER_TYPE = "Sales.Messages.CloseAccount"
# The backlog became due within this time, in the order of storing, with some jitter.
_BACKLOG = timedelta(hours=6)
_JITTER = timedelta(minutes=1)
_DELAY = timedelta(days=1)
_NOT_DUE_FROM, _NOT_DUE_SPAN = timedelta(hours=2), timedelta(hours=22)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What to generate: numbers of messages, and the length of their bodies.

    `due` messages go to `destinations` in turn. `unknown` are due, but their queue does not exist.
    `unreadable` are due, but their headers are cut off. `not_due` become due hours later.
    """

    due: int
    not_due: int = 0
    unknown: int = 0
    unreadable: int = 0
    body_bytes: int = 300
    destinations: tuple[str | None, ...] = DESTINATIONS

    @property
    def messages(self) -> int:
        """The number of all messages."""
        return self.due + self.not_due + self.faulty

    @property
    def faulty(self) -> int:
        """The number of messages that are due but cannot be delivered."""
        return self.unknown + self.unreadable


class DemoRow(NamedTuple):
    """A row of a delayed table."""

    id: UUID
    headers: str
    body: bytes
    due: datetime


def generate(traffic: Traffic, now: datetime) -> Iterator[DemoRow]:
    """The rows, in the order in which they were stored; the same for the same traffic and `now`.

    `now` is the transport's clock, see `stored_now`.
    """
    rng = random.Random(_SEED)
    kinds = ["unknown"] * traffic.unknown + ["unreadable"] * traffic.unreadable
    kinds += ["not due"] * traffic.not_due + ["due"] * traffic.due
    rng.shuffle(kinds)
    for number, kind in enumerate(kinds):
        address = traffic.destinations[number % len(traffic.destinations)]
        due = now - _BACKLOG * (1 - number / len(kinds)) - _JITTER * rng.random()
        if kind == "not due":
            due = now + _NOT_DUE_FROM + _NOT_DUE_SPAN * rng.random()
        headers = write_json(_headers(rng, UNKNOWN_QUEUE if kind == "unknown" else address, due))
        if kind == "unreadable":
            headers = headers[: len(headers) // 2]
        yield DemoRow(_uuid(rng), headers, _body(rng, number, traffic.body_bytes), due)


def stored_now(dsn: str) -> datetime:
    """The time now as the transport stores it: UTC's wall clock, read in the server's time zone."""
    with connect(dsn, DEFAULT_TIMEOUTS.driver) as connection, connection.transaction():
        connection.row("set_zone", zone=None)
        now: datetime = connection.row("horizon").horizon
    return now


def load(
    connection: psycopg.Connection[Any], delayed: TableName | str, rows: Iterable[DemoRow]
) -> None:
    """Append the rows to a delayed table, by COPY."""
    statement = f"COPY {delayed} (id, headers, body, due) FROM STDIN (FORMAT BINARY)"
    with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        copy.set_types(["uuid", "text", "bytea", "timestamptz"])
        for row in rows:
            copy.write_row(row)


def create_schemas(dsn: str) -> None:
    """Create the schemas of the destinations' queues."""
    with psycopg.connect(dsn) as connection:
        connection.execute('CREATE SCHEMA IF NOT EXISTS "Ship"')


def set_password(dsn: str, password: str) -> None:
    """Set the password of the dsn's own user. The server never sees it as text."""
    with psycopg.connect(dsn) as connection:
        user = connection.info.user
        verifier = connection.pgconn.encrypt_password(
            password.encode(), user.encode(), b"scram-sha-256"
        )
        connection.execute(
            sql.SQL("ALTER ROLE {} PASSWORD {}").format(
                sql.Identifier(user), sql.Literal(verifier.decode())
            )
        )


def load_into(dsn: str, delayed: str, traffic: Traffic, now: datetime) -> None:
    """Load the rows into a delayed table, and let the database collect statistics."""
    with psycopg.connect(dsn) as connection:
        load(connection, delayed, generate(traffic, now))
        connection.execute(f"ANALYZE {delayed}".encode())


def count_rows(dsn: str, tables: Sequence[str]) -> dict[str, tuple[int, int]]:
    """How many rows tables have, and how many of these have the headers of another row: no two
    messages have the same, since they hold the message's id.
    """
    found = {}
    with psycopg.connect(dsn) as connection:
        for table in tables:
            statement = f"SELECT count(*), count(*) - count(DISTINCT headers) FROM {table}"  # noqa: S608 - names of ours
            ((rows, twice),) = connection.execute(statement.encode()).fetchall()
            found[table] = rows, twice
    return found


def _headers(rng: random.Random, address: str | None, due: datetime) -> Headers:
    message_id = str(_uuid(rng))
    headers: dict[str, str | None] = {
        MESSAGE_ID: message_id,
        "NServiceBus.MessageIntent": "Send",
        "NServiceBus.ConversationId": str(_uuid(rng)),
        "NServiceBus.CorrelationId": message_id,
        "NServiceBus.ReplyToAddress": ENDPOINT,
        "NServiceBus.OriginatingMachine": f"HOST-{rng.randint(1, 4)}",
        "NServiceBus.OriginatingEndpoint": ENDPOINT,
        "$.diagnostics.originating.hostid": "5a5c9d1f0f4b4e0ea1b1ad7a7c3f2c11",
        "NServiceBus.ContentType": "application/json",
        ENCLOSED_MESSAGE_TYPES: f"{_TYPES.get(address, _OTHER_TYPE)}, Sales.Messages, "
        "Version=1.0.0.0, Culture=neutral, PublicKeyToken=null",
        "NServiceBus.Version": "10.2.8",
        "NServiceBus.TimeSent": f"{due - _DELAY:%Y-%m-%d %H:%M:%S:%f} Z",
    }
    if address is not None:
        return headers | {
            "NServiceBus.RelatedTo": str(_uuid(rng)),
            FORWARD_DESTINATION: address,
        }
    # An endpoint sends itself the timeouts of its sagas.
    return headers | {
        "NServiceBus.IsSagaTimeoutMessage": "True",
        "NServiceBus.SagaId": str(_uuid(rng)),
        "NServiceBus.SagaType": "Sales.OrderSaga, Sales",
    }


def _body(rng: random.Random, number: int, length: int) -> bytes:
    """An order of this many bytes, if it has room for one. PostgreSQL compresses a long one to
    half, as it does real JSON; text at random would cost it a vain attempt whenever a row is
    written.
    """
    lines: list[object] = []
    order = {"OrderId": number, "CustomerId": str(_uuid(rng)), "Lines": lines, "Note": ""}
    room = length - len(json.dumps(order))
    while True:
        line = {
            "ProductId": str(_uuid(rng)),
            "Quantity": rng.randint(1, 9),
            "UnitPrice": rng.randint(100, 99_999) / 100,
        }
        room -= len(json.dumps(line)) + len(", ")
        if room < 0:
            break
        lines.append(line)
    order["Note"] = "." * max(0, length - len(json.dumps(order)))
    return json.dumps(order).encode()


def _uuid(rng: random.Random) -> UUID:
    return UUID(bytes=rng.randbytes(16), version=4)
