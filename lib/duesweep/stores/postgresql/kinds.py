"""The kinds of delayed table in PostgreSQL; `KINDS` has them by `store.kind`."""

from dataclasses import dataclass

from duesweep.stores.relational.kinds import TableKind, delayed_tables
from duesweep.stores.relational.messages import (
    json_message,
    json_message_with_destination,
    json_row,
)
from duesweep.stores.relational.pauses import FORWARDED_TO, destination_like, forwarded_like
from duesweep.stores.relational.timeouts import (
    SETTINGS,
    timeout_row,
    timeout_tables,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgreSqlTableKind(TableKind):
    """`time_zone` "UTC": Due is a true instant, or what a clock in UTC shows. None: only where Due
    is written as the transport writes it, `timestamptz(now() AT TIME ZONE 'UTC')`, which depends
    on the writers' sessions (docs/decisions/due-and-time-zones.md).

    `names`: the quoted columns `id`, `headers`, `body` and `due`; `due_type`, the type of Due in a
    cast; `utc`, what is put behind an instant to compare it with Due; `destination`, the expression
    for it, with the table's alias `d`, or NULL; `pausable`, the text that `pausing` tests, as
    UTF-8.
    """

    time_zone: str | None = None


# The transport adds this header as the last one. To search all headers of a paused message takes
# three times as long; a destination that is not found here is found by the claim.
_LAST_HEADERS = "substring(convert_to(d.headers, 'UTF8') from octet_length(d.headers) - 299)"
_POSITION = f"nullif(position('{FORWARDED_TO}'::bytea in {_LAST_HEADERS}), 0)"
_FORWARDED_TO = f"substring({_LAST_HEADERS} from {_POSITION} + {len(FORWARDED_TO)})"

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
    pausing=forwarded_like,
    names={
        "id": "id",
        "headers": "headers",
        "body": "body",
        "due": "due",
        "due_type": "timestamptz",
        # From an instant to what the column holds, and back.
        "utc": "",
        "destination": "NULL",
        "pausable": _FORWARDED_TO,
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
        "pausable": """convert_to(d."Destination", 'UTF8')""",
    },
)

KINDS = {"postgresql": TRANSPORT, "sql-persistence": SQL_PERSISTENCE}
