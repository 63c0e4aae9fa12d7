"""PostgreSQL's side of the checks: what a sweep needs, and the facts that the doctor judges."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from duesweep.checks.postgresql import PostgreSqlFacts, SequenceFacts, ZoneFacts
from duesweep.checks.table_findings import TableFacts
from duesweep.checks.tables import Columns, WantedTable
from duesweep.checks.time_outs import TimeOut
from duesweep.core.address import TableName, quote_name
from duesweep.core.errors import ConfigError, StoreError
from duesweep.core.policy import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.postgresql.session import (
    PostgreSqlSession,
    column_lists,
    connect,
    connect_as_server,
    find_table,
)
from duesweep.stores.checks import read_clock, wanted_tables
from duesweep.stores.dialect import Location
from duesweep.stores.kinds import destinations
from duesweep.stores.zone import writer_time_zone

WantedTables = Callable[[], Sequence[tuple[TableName, WantedTable]]]


@dataclass(frozen=True, slots=True)
class PostgreSqlQuestion:
    """A database, and the queue tables that are expected there. Any table with `queue_columns` is a
    queue table. `store` is None if no messages wait there.
    """

    setting: str
    dsn: str = field(repr=False)
    queues: WantedTables
    queue_columns: Columns
    store: Location | None = None
    timeouts: Timeouts = DEFAULT_TIMEOUTS


def gather(question: PostgreSqlQuestion) -> PostgreSqlFacts:
    """The facts. Raises `ConfigError` and `StoreError` if no session can be opened."""
    with connect(question.dsn, question.timeouts.task) as connection:
        server = connection.row("doctor_server")
        session = connection.row("describe_session")
        backends: set[int] = set()

        def now() -> datetime:
            row = connection.row("doctor_clock")
            backends.add(row.backend)
            now: datetime = row.now
            return now

        readings = read_clock(now)
        wanted = [
            *(wanted_tables(question.store, question.store.delayed) if question.store else ()),
            *question.queues(),
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
            tables=[_table(connection, server.role, *each) for each in wanted],
            sequences=_sequences(connection, question.queue_columns),
            zones=_zones(connection, question.store),
            time_outs=[TimeOut(*row) for row in connection.rows("doctor_time_outs")],
            sslmode=connection.tls.get("sslmode", "prefer"),
            is_encrypted=connection.is_encrypted,
        )


def waiting_destinations(location: Location, most: int) -> Sequence[str]:
    """The destinations of the messages that are due first, at most `most` messages; without the
    endpoint's own queue and what cannot be read. Raises `ConfigError` and `StoreError` as a sweep
    does.
    """
    with connect(location.dsn, location.timeouts.task) as connection:
        return destinations(connection.named(location.names()).rows("doctor_waiting", most=most))


def _table(
    connection: PostgreSqlSession, role: str, table: TableName, wanted: WantedTable
) -> TableFacts:
    found = find_table(connection, table, wanted.rights)
    if found is not None:
        indexes = connection.rows("describe_indexes", schema=table.schema, table=table.table)
        found = replace(
            found,
            indexed=frozenset(row.column_name for row in indexes if not row.is_partial),
            indexed_in_part=frozenset(row.column_name for row in indexes if row.is_partial),
        )
    user, schema = quote_name(role), quote_name(table.schema)
    usage = f"GRANT USAGE ON SCHEMA {schema} TO {user}"
    return TableFacts(wanted, found, f"ON {table} TO {user}", [usage])


def _sequences(connection: PostgreSqlSession, queue_columns: Columns) -> list[SequenceFacts]:
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
        for row in connection.rows("doctor_sequences", **column_lists(queue_columns))
    ]


def _zones(connection: PostgreSqlSession, store: Location | None) -> ZoneFacts | None:
    # Only if the time zone of the writers' sessions decides what a Due means.
    if store is None or store.kind.time_zone is not None:
        return None
    delayed = store.delayed
    if find_table(connection, delayed) is None:
        return None
    with connect_as_server(store.dsn, store.timeouts.task) as session:
        server = session.row("session_zone")
    writers, problem = None, None
    try:
        writers = writer_time_zone(connection, store.dsn, delayed)
    except ConfigError as error:
        problem = str(error)
    override = store.writer_time_zone
    minutes = _minutes(connection, override or writers)
    return ZoneFacts(server.zone, server.source, writers, problem, override, minutes)


def _minutes(connection: PostgreSqlSession, zone: str | None) -> tuple[int, int] | None:
    if zone is None:
        return None
    try:
        row = connection.row("doctor_zone", zone=zone)
    except StoreError as error:
        if error.transient:
            raise
        return None
    return row.least, row.most
