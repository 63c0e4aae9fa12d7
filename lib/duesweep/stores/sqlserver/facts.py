"""What the doctor wants to know of a database of SQL Server. Writes nothing."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from duesweep.checks.sqlserver import SqlServerFacts
from duesweep.checks.tables import FoundTable, TableFacts, WantedTable
from duesweep.core.address import SqlServerTable, bracketed
from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.sqlserver import SqlServerConnection, connect
from duesweep.errors import ConfigError, StoreError
from duesweep.stores.relational.messages import destinations
from duesweep.stores.relational.readings import read_clock
from duesweep.stores.sqlserver.location import SqlServerLocation
from duesweep.stores.sqlserver.shapes import delayed_table, journal
from duesweep.stores.sqlserver.table import find_delayed

WantedTables = Callable[[str], Sequence[tuple[SqlServerTable, WantedTable]]]


@dataclass(frozen=True, slots=True)
class SqlServerQuestion:
    """Which database, and which queue tables are expected there, of a user; `store` where messages
    wait there.
    """

    setting: str
    dsn: str = field(repr=False)
    queues: WantedTables
    store: SqlServerLocation | None = None
    timeouts: Timeouts = DEFAULT_TIMEOUTS


def gather(question: SqlServerQuestion) -> SqlServerFacts:
    """The facts. Raises `ConfigError` and `StoreError` where there is no session to be had."""
    with connect(question.dsn, question.timeouts.task) as connection:
        server = connection.row("doctor_server", {})
        delayed, ambiguous = _delayed(connection, question.store)
        wanted = [*_store_tables(question.store, delayed, server.grantee)]
        journal_here = [table for table, _ in _journal(question.store, server.grantee)]
        wanted += question.queues(server.grantee)
        return SqlServerFacts(
            setting=question.setting,
            version=server.version,
            database=server.database_name,
            compatibility_level=server.compatibility_level,
            updateability=connection.row("describe_session", {}).updateability,
            is_read_committed_snapshot=bool(server.is_read_committed_snapshot),
            snapshot_isolation=server.snapshot_isolation,
            minutes_ahead=server.minutes_ahead,
            json_problem=_json_problem(connection),
            readings=read_clock(lambda: _now(connection)),
            tables=[
                replace(_table(connection, table, expected), is_journal=table in journal_here)
                for table, expected in wanted
            ],
            lock_escalation=_lock_escalation(connection, delayed),
            ambiguous=ambiguous,
            holds_messages=question.store is not None,
        )


def _delayed(
    connection: SqlServerConnection, store: SqlServerLocation | None
) -> tuple[SqlServerTable | None, str | None]:
    """The delayed table, or why it is not clear which one it is."""
    try:
        return (find_delayed(connection, store) if store else None), None
    except ConfigError as error:
        return None, str(error)


def _store_tables(
    store: SqlServerLocation | None, delayed: SqlServerTable | None, user: str
) -> Iterator[tuple[SqlServerTable, WantedTable]]:
    if store is None:
        return
    if delayed is not None:
        yield delayed, delayed_table(store, delayed, user)
    yield from _journal(store, user)


def _journal(
    store: SqlServerLocation | None, user: str
) -> Iterator[tuple[SqlServerTable, WantedTable]]:
    return journal(store.candidates[0], user) if store else iter(())


def waiting_destinations(location: SqlServerLocation, most: int) -> Sequence[str]:
    """Where the messages go that are due first, so many of them; the endpoint's own queue left out,
    and what cannot be read. Raises `ConfigError` and `StoreError` as a sweep would.
    """
    with connect(location.dsn, location.timeouts.task) as connection:
        names = location.names(find_delayed(connection, location))
        return destinations(connection.rows("doctor_waiting", names, most=most))


def _table(
    connection: SqlServerConnection, table: SqlServerTable, wanted: WantedTable
) -> TableFacts:
    database = connection.row("describe_catalog", {}, catalog=table.catalog)
    if not (database.found and database.is_open):
        return TableFacts(wanted, None)
    names = {"catalog": bracketed(table.catalog)}
    columns = connection.rows("describe_table", names, schema=table.schema, table=table.table)
    if not columns:
        return TableFacts(wanted, None)
    indexes = connection.rows("doctor_indexes", names, name=table.sql)
    # Some servers give the names of an index's columns in lower case.
    written = {row.name.lower(): row.name for row in columns}
    firsts = [(written[row.column_name.lower()], bool(row.is_partial)) for row in indexes]
    found = FoundTable(
        is_table=all(row.kind == "BASE TABLE" for row in columns),
        columns={row.name: row.type.lower() for row in columns},
        missing_rights=[
            right
            for right in wanted.rights
            if not connection.row("doctor_right", {}, name=table.sql, right=right).is_granted
        ],
        indexed=frozenset(name for name, is_partial in firsts if not is_partial),
        indexed_in_part=frozenset(name for name, is_partial in firsts if is_partial),
    )
    return TableFacts(wanted, found)


def _json_problem(connection: SqlServerConnection) -> str | None:
    try:
        connection.rows("doctor_json", {}, numbers="[1]")
    except StoreError as error:
        if error.transient:
            raise
        return str(error)
    return None


def _now(connection: SqlServerConnection) -> datetime:
    now: datetime = connection.row("doctor_clock", {}).now
    return now.replace(tzinfo=UTC)


def _lock_escalation(connection: SqlServerConnection, delayed: SqlServerTable | None) -> str | None:
    if delayed is None:
        return None
    names = {"catalog": bracketed(delayed.catalog)}
    rows = connection.rows("doctor_lock_escalation", names, name=delayed.sql)
    return str(rows[0].lock_escalation) if rows else None
