"""Facts about a database of SQL Server, for the doctor. Reads only."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from duesweep.checks.sqlserver import SqlServerFacts
from duesweep.checks.table_findings import TableFacts
from duesweep.checks.tables import FoundTable, WantedTable
from duesweep.core.address import SqlServerTable, bracket_name
from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.sqlserver.catalog import find_table, with_indexes
from duesweep.drivers.sqlserver.session import SqlServerSession, connect
from duesweep.errors import ConfigError, StoreError
from duesweep.stores.relational.messages import destinations
from duesweep.stores.relational.readings import read_clock
from duesweep.stores.sqlserver.delayed import find_delayed
from duesweep.stores.sqlserver.location import SqlServerLocation
from duesweep.stores.sqlserver.wanted import wanted_journals, wanted_tables

WantedTables = Callable[[], Sequence[tuple[SqlServerTable, WantedTable]]]


@dataclass(frozen=True, slots=True)
class SqlServerQuestion:
    """A database, and the queue tables that are expected there. `store` is None if no messages wait
    there.
    """

    setting: str
    dsn: str = field(repr=False)
    queues: WantedTables
    store: SqlServerLocation | None = None
    timeouts: Timeouts = DEFAULT_TIMEOUTS


def gather(question: SqlServerQuestion) -> SqlServerFacts:
    """The facts. Raises `ConfigError` and `StoreError` if no session can be opened."""
    with connect(question.dsn, question.timeouts.task) as connection:
        server = connection.row("doctor_server")
        delayed, ambiguous = _delayed(connection, question.store)
        wanted = [*_store_tables(question.store, delayed), *question.queues()]
        return SqlServerFacts(
            setting=question.setting,
            version=server.version,
            database=server.database_name,
            compatibility_level=server.compatibility_level,
            updateability=connection.row("describe_session").updateability,
            is_read_committed_snapshot=bool(server.is_read_committed_snapshot),
            snapshot_isolation=server.snapshot_isolation,
            minutes_ahead=server.minutes_ahead,
            json_problem=_json_problem(connection),
            readings=read_clock(lambda: _now(connection)),
            tables=[_table(connection, server.grantee, *each) for each in wanted],
            lock_escalation=_lock_escalation(connection, delayed),
            ambiguous=ambiguous,
            holds_messages=question.store is not None,
        )


def _delayed(
    connection: SqlServerSession, store: SqlServerLocation | None
) -> tuple[SqlServerTable | None, str | None]:
    """The delayed table, or why it is not known which one it is."""
    try:
        return (find_delayed(connection, store) if store else None), None
    except ConfigError as error:
        return None, str(error)


def _store_tables(
    store: SqlServerLocation | None, delayed: SqlServerTable | None
) -> Iterable[tuple[SqlServerTable, WantedTable]]:
    if store is None:
        return ()
    if delayed is None:
        # All candidates are in the same schema, and so is the journal.
        return wanted_journals(store.candidates[0])
    return wanted_tables(store.kind, delayed)


def waiting_destinations(location: SqlServerLocation, most: int) -> Sequence[str]:
    """The destinations of the messages that are due first, at most `most` messages; without the
    endpoint's own queue and what cannot be read. Raises `ConfigError` and `StoreError` as a sweep
    does.
    """
    with connect(location.dsn, location.timeouts.task) as connection:
        statements = connection.named(location.names(find_delayed(connection, location)))
        return destinations(statements.rows("doctor_waiting", most=most))


def _table(
    connection: SqlServerSession, user: str, table: SqlServerTable, wanted: WantedTable
) -> TableFacts:
    beside = f"{bracket_name(table.schema)}.{bracket_name(table.table)}"
    return TableFacts(
        wanted,
        _found(connection, table, wanted.rights),
        f"ON {beside} TO {bracket_name(user)}",
        database=table.catalog,
    )


def _found(
    connection: SqlServerSession, table: SqlServerTable, rights: Sequence[str]
) -> FoundTable | None:
    database = connection.row("describe_catalog", catalog=table.catalog)
    if not (database.found and database.is_open):
        return None
    found = find_table(connection, table)
    if found is None:
        return None
    return replace(
        with_indexes(connection, table, found),
        missing_rights=[
            right
            for right in rights
            if not connection.row("doctor_right", name=table.sql, right=right).is_granted
        ],
    )


def _json_problem(connection: SqlServerSession) -> str | None:
    try:
        connection.rows("doctor_json", numbers="[1]")
    except StoreError as error:
        if error.transient:
            raise
        return str(error)
    return None


def _now(connection: SqlServerSession) -> datetime:
    now: datetime = connection.row("doctor_clock").now
    return now.replace(tzinfo=UTC)


def _lock_escalation(connection: SqlServerSession, delayed: SqlServerTable | None) -> str | None:
    if delayed is None:
        return None
    catalog = connection.named({"catalog": bracket_name(delayed.catalog)})
    rows = catalog.rows("doctor_lock_escalation", name=delayed.sql)
    return str(rows[0].lock_escalation) if rows else None
