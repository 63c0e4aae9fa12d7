"""SQL Server's tables: what a sweep needs of them, how they are created, and the facts that the
doctor judges.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from duesweep.checks.sqlserver import SqlServerFacts
from duesweep.checks.table_findings import TableFacts
from duesweep.checks.tables import SQL_SERVER_QUEUE_RIGHTS, FoundTable, WantedIndex, WantedTable
from duesweep.core.account import FORMAT_MARK
from duesweep.core.address import SqlServerTable, bracket_name
from duesweep.core.errors import ConfigError, StoreError
from duesweep.core.policy import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.sqlserver.binding import creation, script
from duesweep.drivers.sqlserver.catalog import (
    find_table,
    is_there,
    missing_rights,
    similar_tables,
    with_indexes,
)
from duesweep.drivers.sqlserver.dsn import database_of
from duesweep.drivers.sqlserver.session import SqlServerSession, connect
from duesweep.drivers.statements import Session
from duesweep.stores.checks import read_clock, wanted_journals, wanted_tables
from duesweep.stores.dialect import Location, Tables
from duesweep.stores.kinds import TableKind, destinations

WantedTables = Callable[[], Sequence[tuple[SqlServerTable, WantedTable]]]


def check_session(
    connection: SqlServerSession,
    setting: str,
    location: Location | None = None,  # noqa: ARG001 - no setting of a store is the server's
) -> None:
    """Raise `ConfigError` for a database, which `setting` names, that is read-only or too old."""
    session = connection.row("describe_session")
    if session.updateability == "READ_ONLY":
        raise ConfigError(
            f"The database that {setting} names is read-only",
            advice="connect to the primary replica",
        )
    try:
        connection.rows("read_lists", words="1", numbers="[1]")
    except StoreError as error:
        if error.transient:
            raise
        raise ConfigError(
            f"The database that {setting} names cannot read lists and JSON ({error})",
            advice="use SQL Server 2017 or newer, and a compatibility level of 130 or more",
        ) from error


def _found(
    session: SqlServerSession, table: SqlServerTable, rights: Sequence[str]
) -> FoundTable | None:
    found = find_table(session, table)
    if found is None or not rights:
        return found
    return replace(found, missing_rights=missing_rights(session, table, rights))


def _columns(session: SqlServerSession, table: SqlServerTable) -> Collection[str] | None:
    # Unlike a look at its columns, this works if the database does not exist.
    if not is_there(session, table):
        return None
    found = find_table(session, table)
    return () if found is None else found.columns


def _estimate_rows(session: SqlServerSession, table: SqlServerTable) -> int:
    return int(session.row("estimate_rows", table=table.sql).rows)


def _due_index(kind: TableKind, delayed: SqlServerTable) -> WantedIndex:
    return WantedIndex(
        kind.due,
        "every look for what is due reads the whole table, and a claim locks more of it",
        f"CREATE NONCLUSTERED INDEX {bracket_name(kind.index)} ON {delayed.sql} "
        f"({kind.names['due']})",
    )


def _index_creation(kind: TableKind, delayed: SqlServerTable) -> str:
    columns = {"due": kind.names["due"], "index": bracket_name(kind.index)}
    return creation("create_due_index", columns, delayed=delayed)


def _creation(name: str, /, **tables: SqlServerTable) -> str:
    return creation(name, {"format": FORMAT_MARK}, **tables)


def _script(dsn: str, creations: Iterable[Sequence[str]]) -> str:
    return script(database_of(dsn), [text for texts in creations for text in texts])


def _create(
    session: Session,
    new: Sequence[SqlServerTable],  # noqa: ARG001 - each of the scripts looks itself
    scripts: Sequence[tuple[Sequence[SqlServerTable], Sequence[str]]],
) -> None:
    for tables, texts in scripts:
        try:
            for text in texts:
                session.script(text)
        except StoreError as error:
            if error.transient:
                raise
            raise ConfigError(
                f"{', '.join(table.sql for table in tables)} cannot be created or altered: {error}",
                advice=(
                    "grant CREATE TABLE and VIEW DEFINITION, and ALTER on the schema, or have "
                    "an administrator run what `setup --print-sql` prints"
                ),
            ) from error


def _grants(
    role: str,
    rights: Mapping[SqlServerTable, Sequence[str]],
    queues: Sequence[SqlServerTable],  # noqa: ARG001 - they take no more
) -> str:
    """In batches."""
    lines = []
    for catalog in sorted({table.catalog for table in rights}):
        # GRANT takes no table of another database.
        lines += ["GO", f"USE {bracket_name(catalog)};"]
        lines += [
            f"GRANT {', '.join(rights[table])} ON {bracket_name(table.schema)}."
            f"{bracket_name(table.table)} TO {bracket_name(role)};"
            for table in rights
            if table.catalog == catalog
        ]
    return "\n".join(lines)


SQL_SERVER_TABLES = Tables(
    check_session=check_session,
    find=_found,
    with_indexes=with_indexes,
    columns=_columns,
    estimate_rows=_estimate_rows,
    similar=similar_tables,
    creation=_creation,
    script=_script,
    create=_create,
    grants=_grants,
    due_index=_due_index,
    index_creation=_index_creation,
    queue_rights=SQL_SERVER_QUEUE_RIGHTS,
    body_string="BodyString",
)


@dataclass(frozen=True, slots=True)
class SqlServerQuestion:
    """A database, and the queue tables that are expected there. `store` is None if no messages wait
    there.
    """

    setting: str
    dsn: str = field(repr=False)
    queues: WantedTables
    store: Location | None = None
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
    connection: SqlServerSession, store: Location | None
) -> tuple[SqlServerTable | None, str | None]:
    """The delayed table, or why it is not known which one it is."""
    try:
        return (store.find_delayed(connection) if store else None), None
    except ConfigError as error:
        return None, str(error)


def _store_tables(
    store: Location | None, delayed: SqlServerTable | None
) -> Iterable[tuple[SqlServerTable, WantedTable]]:
    if store is None:
        return ()
    if delayed is None:
        # All candidates are in the same schema, and so is the journal.
        return wanted_journals(store.dialect, store.delayed)
    return wanted_tables(store, delayed)


def waiting_destinations(location: Location, most: int) -> Sequence[str]:
    """The destinations of the messages that are due first, at most `most` messages; without the
    endpoint's own queue and what cannot be read. Raises `ConfigError` and `StoreError` as a sweep
    does.
    """
    with connect(location.dsn, location.timeouts.task) as connection:
        statements = connection.named(location.names(location.find_delayed(connection)))
        return destinations(statements.rows("doctor_waiting", most=most))


def _table(
    connection: SqlServerSession, user: str, table: SqlServerTable, wanted: WantedTable
) -> TableFacts:
    beside = f"{bracket_name(table.schema)}.{bracket_name(table.table)}"
    return TableFacts(
        wanted,
        _examined(connection, table, wanted.rights),
        f"ON {beside} TO {bracket_name(user)}",
        database=table.catalog,
    )


def _examined(
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
