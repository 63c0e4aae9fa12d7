"""The kinds of delayed table in PostgreSQL."""

from dataclasses import dataclass

from duesweep.stores.relational.kinds import TableKind
from duesweep.stores.sqlpersistence.timeouts import SETTINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgreSqlTableKind(TableKind):
    """`time_zone` is the one whose clock Due shows; None: that of the writers' sessions. The alias
    of the delayed table is `d` where a name needs one.
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
    names={
        "id": "id",
        "headers": "headers",
        "body": "body",
        "due": "due",
        "due_type": "timestamptz",
        # From an instant to what the column holds, and back.
        "utc": "",
        "destination": "NULL",
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
    may_lack_due=True,
    has_destination=True,
    has_own_queue=False,
    names={
        "id": '"Id"',
        "headers": '"Headers"',
        "body": '"State"',
        "due": '"Time"',
        "due_type": "timestamp",
        "utc": " AT TIME ZONE 'UTC'",
        "destination": 'd."Destination"',
    },
)
