"""SQL Server's tables: the needs of a sweep, how they are created, and all possible faults
of a database. A check judges the row of its own statement.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from duesweep.core.account import FORMAT_MARK
from duesweep.core.address import SqlServerTable, bracket_name
from duesweep.core.errors import ConfigError, Problem, StoreError, capitalized
from duesweep.core.finding import (
    Check,
    Finding,
    clock_skew,
    fault,
    ok,
    reachable,
    read_clock,
    skipped,
    stop,
    warning,
)
from duesweep.core.policy import (
    DEFAULT_TIMEOUTS,
    MAX_BATCH_ROWS,
    SCANNED_ROWS,
    Timeouts,
)
from duesweep.drivers.sqlserver.binding import creation, script
from duesweep.drivers.sqlserver.catalog import (
    find_table,
    find_tables,
    hidden_rows,
    is_there,
    similar_tables,
    with_indexes,
)
from duesweep.drivers.sqlserver.dsn import database_of
from duesweep.drivers.sqlserver.session import SqlServerSession, connect
from duesweep.drivers.statements import FoundTable, Session
from duesweep.stores.dialect import Location, Tables, WantedIndex
from duesweep.stores.kinds import TableKind
from duesweep.stores.tables import (
    Grants,
    WantedTable,
    all_table_findings,
    dropping,
    empty_beside_full,
    wanted_journals,
    wanted_tables,
)


def check_session(
    connection: SqlServerSession,
    setting: str,
    location: Location | None = None,  # noqa: ARG001 - no setting of a store is the server's
) -> Iterator[Finding]:
    """Whether a database, which `setting` names, takes writes, and can read lists."""
    yield _writable(setting, connection.row("describe_session"))
    if (problem := _refused(connection, "read_lists", words="1", numbers="[1]")) is not None:
        refusal = Problem(
            f"The database that {setting} names cannot read lists and JSON ({problem})",
            "use SQL Server 2017 or newer, and a compatibility level of 130 or more",
        )
        yield stop(Check.SERVER_VERSION, setting, refusal)


def _columns(
    session: SqlServerSession, tables: Iterable[SqlServerTable]
) -> Mapping[SqlServerTable, Collection[str]]:
    # Unlike a look at its columns, this works if the database does not exist.
    there = [table for table in tables if is_there(session, table)]
    found = find_tables(session, dict.fromkeys(there, ()))
    return {table: found[table].columns if table in found else () for table in there}


def _estimate_rows(session: SqlServerSession, table: SqlServerTable) -> int:
    return int(session.row("estimate_rows", table=table.sql).rows)


def _due_index(kind: TableKind, delayed: SqlServerTable) -> WantedIndex:
    return WantedIndex(
        kind.due,
        "every search for due messages reads the whole table, and a claim locks more of it",
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
    named_by: str,
) -> None:
    for tables, texts in scripts:
        try:
            for text in texts:
                session.script(text)
        except StoreError as error:
            if error.transient:
                raise
            schema, catalog = bracket_name(tables[0].schema), bracket_name(tables[0].catalog)
            raise ConfigError(
                f"{', '.join(table.sql for table in tables)} cannot be created or altered: {error}",
                advice=(
                    f"check that there is a schema {schema} in database {catalog}, and grant "
                    "CREATE TABLE and VIEW DEFINITION, and ALTER on the schema, or have an "
                    f"administrator run what --print-sql prints; or correct {named_by}"
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


def _found_hooks(
    session: SqlServerSession,  # noqa: ARG001 - a trial could end the transaction
    location: Location | None,  # noqa: ARG001
    wanted: WantedTable,
    found: FoundTable,
) -> Sequence[Finding]:
    """A trigger that runs in place of a statement: it cannot return the removed rows."""
    return [dropping(wanted, found, "does not run the statements of a sweep")]


SQL_SERVER_TABLES = Tables(
    check_session=check_session,
    find=find_tables,
    with_indexes=with_indexes,
    columns=_columns,
    estimate_rows=_estimate_rows,
    similar=similar_tables,
    hidden_rows=hidden_rows,
    try_hooks=_found_hooks,
    creation=_creation,
    script=_script,
    script_of=lambda table, texts: script(table.catalog, texts),
    create=_create,
    grants=_grants,
    due_index=_due_index,
    index_creation=_index_creation,
    body_string="BodyString",
    has_older_queues=True,
)


def examine(
    dsn: str,
    setting: str,
    queues: Callable[[], Sequence[WantedTable]],
    *,
    store: Location | None = None,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> Iterator[Finding]:
    """Findings on a database, and on the queue tables that are expected there. `store` is None if
    no messages wait there. Raises `ConfigError` and `StoreError` if no session can be opened.
    """
    with connect(dsn, timeouts.task) as connection:
        server = connection.row("doctor_server")
        yield from server_findings(connection, setting, server)
        wanted: list[WantedTable] = []
        if store is not None:
            delayed, ambiguous = _delayed(connection, store)
            yield one_delayed_table(setting, ambiguous)
            yield lock_escalation(setting, _escalations(connection, delayed))
            # All candidates are in the same schema, and so is the journal.
            wanted += (
                wanted_journals(store.dialect, store.delayed)
                if delayed is None
                else wanted_tables(store, delayed)
            )
        wanted += queues()
        tables = [_examined(connection, server.grantee, each) for each in wanted]
        yield from all_table_findings(setting, tables, partial(similar_tables, connection))
        if store is not None and any(one.table == delayed and found for one, found, _ in tables):
            yield from empty_beside_full(connection, store, delayed)
        for one, found, _ in tables:
            if found is not None and found.hooks:
                yield from _found_hooks(connection, store, one, found)


def server_findings(connection: SqlServerSession, setting: str, server: Any) -> Iterator[Finding]:
    """Findings on the server and the session's database, of which `doctor_server` told."""
    readings = read_clock(lambda: _now(connection))
    yield reachable(setting, f"SQL Server {server.version}", readings)
    yield _version(setting, server, _refused(connection, "doctor_json", numbers="[1]"))
    yield _writable(setting, connection.row("describe_session"))
    yield _durability(setting, server)
    yield clock_skew(setting, readings)
    yield _zone(setting, server)
    yield _read_committed_snapshot(setting, server)
    yield _snapshot_isolation(setting, server)


def _examined(
    connection: SqlServerSession, user: str, wanted: WantedTable
) -> tuple[WantedTable, FoundTable | None, Grants]:
    table: SqlServerTable = wanted.table
    beside = f"{bracket_name(table.schema)}.{bracket_name(table.table)}"
    grants = Grants(f"ON {beside} TO {bracket_name(user)}", database=table.catalog)
    database = connection.row("describe_catalog", catalog=table.catalog)
    found = find_table(connection, table) if database.found and database.is_open else None
    if found is None:
        return wanted, None, grants
    found = replace(
        with_indexes(connection, table, found),
        missing_rights=[
            right
            for right in wanted.rights
            if not connection.row("doctor_right", name=table.sql, right=right).is_granted
        ],
    )
    return wanted, found, grants


def _delayed(
    connection: SqlServerSession, store: Location
) -> tuple[SqlServerTable | None, str | None]:
    """The delayed table, or why it is not known which one it is."""
    try:
        return store.find_delayed(connection), None
    except ConfigError as error:
        return None, str(error)


def _refused(connection: SqlServerSession, name: str, **values: object) -> str | None:
    """The server's error for a statement; None if it runs."""
    try:
        connection.rows(name, **values)
    except StoreError as error:
        if error.transient:
            raise
        return str(error)
    return None


def _now(connection: SqlServerSession) -> datetime:
    now: datetime = connection.row("doctor_clock").now
    return now.replace(tzinfo=UTC)


def _version(setting: str, server: Any, problem: str | None) -> Finding:
    what = f"SQL Server {server.version}, compatibility level {server.compatibility_level}"
    if problem is None:
        return ok(Check.SERVER_VERSION, setting, f"{what}: reads and joins lists")
    return fault(
        Check.SERVER_VERSION,
        setting,
        f"{what}, has no OPENJSON or no STRING_AGG: {problem}",
        "That takes SQL Server 2017 or newer, and ALTER DATABASE "
        f"{bracket_name(server.database_name)} SET COMPATIBILITY_LEVEL = 130 or more",
    )


def _writable(setting: str, session: Any) -> Finding:
    if session.updateability != "READ_ONLY":
        return ok(Check.SERVER_WRITABLE, setting, "The database takes writes")
    refusal = Problem(
        f"The database that {setting} names is read-only",
        "connect to the primary replica, without ApplicationIntent=ReadOnly",
    )
    return stop(Check.SERVER_WRITABLE, setting, refusal)


def _durability(setting: str, server: Any) -> Finding:
    check = Check.DURABILITY
    if server.delayed_durability != "FORCED":
        return ok(check, setting, "Commits of duesweep's sessions are on the server's disk")
    statement = (
        f"ALTER DATABASE {bracket_name(server.database_name)} SET DELAYED_DURABILITY = ALLOWED"
    )
    return warning(
        check,
        setting,
        "DELAYED_DURABILITY is FORCED: a crash of the server loses its last commits, and messages "
        "that were reported as delivered",
        statement,
        statements=[statement],
    )


def _zone(setting: str, server: Any) -> Finding:
    text = (
        f"The server's own clock is {server.minutes_ahead} min ahead of UTC, which does not matter"
        ": Due is UTC, and is compared to UTC"
    )
    return ok(Check.SERVER_TIME_ZONE, setting, text)


def _read_committed_snapshot(setting: str, server: Any) -> Finding:
    check = Check.READ_COMMITTED_SNAPSHOT
    if server.is_read_committed_snapshot:
        return ok(check, setting, "Readers see committed rows, and do not wait")
    when = "while no other session is connected"
    statement = (
        f"ALTER DATABASE {bracket_name(server.database_name)} SET READ_COMMITTED_SNAPSHOT ON WITH "
        "ROLLBACK AFTER 10 SECONDS"
    )
    return warning(
        check,
        setting,
        "READ_COMMITTED_SNAPSHOT is off: other readers wait for the rows that a batch locks, and "
        "batches wait for theirs. Sweeps work either way, because a claim skips locked rows; "
        "plans, counts and other queries wait",
        f"{capitalized(when)}: {statement}; or accept it with --ignore {check}",
        statements=[f"-- Only {when}:\n{statement}"],
    )


def _snapshot_isolation(setting: str, server: Any) -> Finding:
    text = (
        f"ALLOW_SNAPSHOT_ISOLATION is {server.snapshot_isolation}; sweeps need none, and set READ "
        "COMMITTED themselves"
    )
    return ok(Check.SNAPSHOT_ISOLATION, setting, text)


def one_delayed_table(setting: str, ambiguous: str | None) -> Finding:
    """Whether one table can be the delayed one; `ambiguous` says which two can."""
    check = Check.ONE_DELAYED_TABLE
    if ambiguous is None:
        return ok(check, setting, "One table can be the delayed one")
    return fault(
        check,
        setting,
        ambiguous,
        "Find out which of them the endpoint writes to, and set store.delayed_table to it; if the "
        "other holds messages, sweep it once with a configuration of its own",
    )


def _escalations(connection: SqlServerSession, delayed: SqlServerTable | None) -> Sequence[Any]:
    if delayed is None:
        return ()
    catalog = connection.named({"catalog": bracket_name(delayed.catalog)})
    return catalog.rows("doctor_lock_escalation", name=delayed.sql)


def lock_escalation(setting: str, rows: Sequence[Any]) -> Finding:
    """How many locks a server takes on the delayed table before it locks it as a whole."""
    check = Check.LOCK_ESCALATION
    if not rows:
        return skipped(check, setting, "This user cannot see the delayed table")
    text = (
        f"The delayed table's is {rows[0].lock_escalation}; batches of up to {MAX_BATCH_ROWS:,} "
        f"rows look at {SCANNED_ROWS:,}, below the 5,000 locks at which a server locks the table"
    )
    return ok(check, setting, text)
