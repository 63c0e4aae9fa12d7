"""The kinds of delayed table in PostgreSQL; `KINDS` has them by `store.kind`."""

from dataclasses import dataclass

from duesweep.stores.relational.kinds import TableKind, delayed_tables
from duesweep.stores.relational.messages import (
    json_message,
    json_message_with_destination,
    json_row,
)
from duesweep.stores.relational.pauses import destination_like
from duesweep.stores.relational.timeouts import (
    SETTINGS,
    timeout_row,
    timeout_tables,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgreSqlTableKind(TableKind):
    """`time_zone` "UTC": Due is a true instant, or what a clock in UTC shows. None: only where Due
    is written as the transport writes it, `timestamptz(now() AT TIME ZONE 'UTC')`, which depends
    on the writers' sessions (docs/architecture.md, «Due»).

    `names`: the quoted columns `id`, `headers`, `body` and `due`; `due_type`, the type of Due in a
    cast; `utc`, what is put behind an instant to compare it with Due; `destination`, the expression
    for it, with the table's alias `d`, or NULL; `pausable`, the text that `pausing` tests.
    """

    time_zone: str | None = None


TRANSPORT = PostgreSqlTableKind(
    columns={
        "id": "uuid",
        "headers": "text",
        "body": "bytea",
        "due": "timestamp with time zone",
    },
    due="due",
    table_names=delayed_tables,
    read_message=json_message,
    new_row=json_row,
    names={
        "id": "id",
        "headers": "headers",
        "body": "body",
        "due": "due",
        "due_type": "timestamptz",
        # From an instant to what the column holds, and back.
        "utc": "",
        "destination": "NULL",
        "pausable": "d.headers",
    },
)

SQL_PERSISTENCE = PostgreSqlTableKind(
    columns={
        "Id": "uuid",
        "Destination": "character varying",
        "SagaId": "uuid",
        "State": "bytea",
        "Time": "timestamp without time zone",
        "Headers": "text",
        "PersistenceVersion": "character varying",
    },
    due="Time",
    time_zone="UTC",
    create=None,
    settings=SETTINGS,
    table_names=timeout_tables,
    read_message=json_message_with_destination,
    new_row=timeout_row,
    store="store_timeout",
    may_lack_due=True,
    has_destination=True,
    pausing=destination_like,
    has_own_queue=False,
    names={
        "id": '"Id"',
        "headers": '"Headers"',
        "body": '"State"',
        "due": '"Time"',
        "due_type": "timestamp",
        "utc": " AT TIME ZONE 'UTC'",
        "destination": 'd."Destination"',
        "pausable": 'd."Destination"',
    },
)

KINDS = {"postgresql": TRANSPORT, "sql-persistence": SQL_PERSISTENCE}
