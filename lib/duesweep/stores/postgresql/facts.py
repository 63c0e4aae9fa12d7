"""What the doctor wants to know of a database of PostgreSQL. Writes nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from duesweep.checks.postgresql import PostgreSqlFacts, SequenceFacts, ZoneFacts
from duesweep.checks.tables import FoundTable, TableFacts, WantedTable
from duesweep.checks.time_outs import TimeOut
from duesweep.core.address import TableName
from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.postgresql import (
    PostgreSqlConnection,
    connect,
    connect_as_server,
)
from duesweep.errors import ConfigError, StoreError
from duesweep.stores.postgresql.location import PostgreSqlLocation, journal_tables
from duesweep.stores.postgresql.zone import writer_time_zone
from duesweep.stores.relational.messages import destinations
from duesweep.stores.relational.readings import read_clock

# As the queues know them, whose rights and sequences these are about.
_QUEUE = {"typed": ["id uuid", "headers text", "body bytea"], "named": ["expires", "seq"]}
_WITH_ROWS = {"r", "p"}

WantedTables = Callable[[str], Sequence[tuple[TableName, WantedTable]]]


@dataclass(frozen=True, slots=True)
class PostgreSqlQuestion:
    """Which database, and which tables are expected there, of a role; `store` where messages wait
    there.
    """

    setting: str
    dsn: str = field(repr=False)
    wanted: WantedTables
    store: PostgreSqlLocation | None = None
    timeouts: Timeouts = DEFAULT_TIMEOUTS


def gather(question: PostgreSqlQuestion) -> PostgreSqlFacts:
    """The facts. Raises `ConfigError` and `StoreError` where there is no session to be had."""
    with connect(question.dsn, question.timeouts.task) as connection:
        server = connection.row("doctor_server", {})
        session = connection.row("describe_session", {})
        backends: set[int] = set()

        def now() -> datetime:
            row = connection.row("doctor_clock", {})
            backends.add(row.backend)
            now: datetime = row.now
            return now

        readings = read_clock(now)
        journal = journal_tables(question.store.delayed.schema) if question.store else {}
        tables = [
            replace(_table(connection, table, wanted), is_journal=table in journal.values())
            for table, wanted in question.wanted(server.role)
        ]
        return PostgreSqlFacts(
            setting=question.setting,
            role=server.role,
            version=server.version,
            version_number=server.version_number,
            encoding=session.encoding,
            is_read_only=session.is_read_only,
            is_replica=server.is_replica,
            readings=readings,
            backends=frozenset(backends),
            tables=tables,
            sequences=_sequences(connection),
            zones=_zones(connection, question.store),
            time_outs=[TimeOut(*row) for row in connection.rows("doctor_time_outs", {})],
        )


def waiting_destinations(location: PostgreSqlLocation, most: int) -> Sequence[str]:
    """Where the messages go that are due first, so many of them; the endpoint's own queue left out,
    and what cannot be read. Raises `ConfigError` and `StoreError` as a sweep would.
    """
    with connect(location.dsn, location.timeouts.task) as connection:
        return destinations(connection.rows("doctor_waiting", location.names, most=most))


def _table(connection: PostgreSqlConnection, table: TableName, wanted: WantedTable) -> TableFacts:
    names = {"schema": table.schema, "table": table.table}
    rows = connection.rows("describe_table", {}, **names, rights=list(wanted.rights))
    if not rows:
        return TableFacts(wanted, None)
    indexes = connection.rows("doctor_indexes", {}, **names)
    found = FoundTable(
        is_table=rows[0].kind in _WITH_ROWS,
        columns=dict(_named(column, wanted) for column in rows[0].columns),
        missing_rights=rows[0].missing_rights,
        indexed=frozenset(row.column_name for row in indexes if not row.is_partial),
        indexed_in_part=frozenset(row.column_name for row in indexes if row.is_partial),
    )
    return TableFacts(wanted, found)


def _named(column: str, wanted: WantedTable) -> tuple[str, str]:
    """Name and type of `name type`, where both may hold spaces."""
    for name in wanted.columns:
        if column.startswith(f"{name} "):
            return name, column.removeprefix(f"{name} ")
    name, _, kind = column.partition(" ")
    return name, kind


def _sequences(connection: PostgreSqlConnection) -> list[SequenceFacts]:
    return [
        SequenceFacts(
            table=str(TableName(row.schema, row.table)),
            column_type=row.column_type,
            sequence=row.sequence,
            last=row.last,
            most=row.most,
            may_use=row.may_use,
            is_hidden=row.is_hidden,
        )
        for row in connection.rows("doctor_sequences", {}, **_QUEUE)
    ]


def _zones(connection: PostgreSqlConnection, store: PostgreSqlLocation | None) -> ZoneFacts | None:
    # Only where the writers' sessions have a say in what a Due means.
    if store is None or store.kind.time_zone is not None:
        return None
    delayed = store.delayed
    names = {"schema": delayed.schema, "table": delayed.table}
    if not connection.rows("describe_table", {}, **names, rights=[]):
        return None
    with connect_as_server(store.dsn, store.timeouts.task) as session:
        server = session.row("session_zone", {})
    writers, problem = None, None
    try:
        writers = writer_time_zone(connection, store.dsn, delayed)
    except ConfigError as error:
        problem = str(error)
    override = store.writer_time_zone
    minutes = _minutes(connection, override or writers)
    return ZoneFacts(server.zone, server.source, writers, problem, override, minutes)


def _minutes(connection: PostgreSqlConnection, zone: str | None) -> tuple[int, int] | None:
    if zone is None:
        return None
    try:
        row = connection.row("doctor_zone", {}, zone=zone)
    except StoreError as error:
        if error.transient:
            raise
        return None
    return row.least, row.most
