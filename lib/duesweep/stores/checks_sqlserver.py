"""SQL Server's tables: the needs of a sweep, how they are created, and all possible faults
of a database. A check judges the row of its own statement.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from duesweep.core.account import FORMAT_MARK
from duesweep.core.address import SqlServerTable, bracket_name
from duesweep.core.errors import ConfigError, Problem, StoreError, capitalized
from duesweep.core.finding import (
    Check,
    Finding,
    ok,
    stop,
    warning,
)
from duesweep.drivers.sqlserver.binding import creation, script
from duesweep.drivers.sqlserver.catalog import (
    find_tables,
    hidden_rows,
    is_there,
    similar_tables,
    with_indexes,
)
from duesweep.drivers.sqlserver.dsn import database_of
from duesweep.drivers.sqlserver.session import SqlServerSession
from duesweep.drivers.statements import FoundTable, Session
from duesweep.stores.dialect import Location, Tables, WantedIndex
from duesweep.stores.kinds import TableKind
from duesweep.stores.tables import (
    WantedTable,
    dropping,
)


def check_session(
    session: SqlServerSession,
    setting: str,
    location: Location | None = None,  # noqa: ARG001 - no setting of a store is the server's
) -> Iterator[Finding]:
    """Whether a database, which `setting` names, takes writes and keeps them, can read lists, and
    does not let readers wait.
    """
    about = session.row("describe_session")
    yield _writable(setting, about)
    yield _version(session, setting, about)
    yield _durability(setting, about)
    yield _read_committed_snapshot(setting, about)


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


def _version(session: SqlServerSession, setting: str, about: Any) -> Finding:
    what = f"SQL Server {about.version}, compatibility level {about.compatibility_level}"
    try:
        session.rows("read_lists", words="1", numbers="[1]")
    except StoreError as error:
        if error.transient:
            raise
        refusal = Problem(
            f"The database that {setting} names cannot read lists and JSON ({error}): {what}",
            "use SQL Server 2017 or newer, and run ALTER DATABASE "
            f"{bracket_name(about.database_name)} SET COMPATIBILITY_LEVEL = 130 or more",
        )
        return stop(Check.SERVER_VERSION, setting, refusal)
    return ok(Check.SERVER_VERSION, setting, f"{what}: reads and joins lists")


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


class SqlServerTables(Tables):
    """SQL Server's: `setup` creates a missing index on Due."""

    has_older_queues = True
    body_string = "BodyString"
    check_session = staticmethod(check_session)
    find = staticmethod(find_tables)
    with_indexes = staticmethod(with_indexes)
    columns = staticmethod(_columns)
    estimate_rows = staticmethod(_estimate_rows)
    similar = staticmethod(similar_tables)
    hidden_rows = staticmethod(hidden_rows)
    try_hooks = staticmethod(_found_hooks)
    creation = staticmethod(_creation)
    script = staticmethod(_script)
    create = staticmethod(_create)
    grants = staticmethod(_grants)
    due_index = staticmethod(_due_index)
    index_creation = staticmethod(_index_creation)

    def script_of(self, table: SqlServerTable, texts: Sequence[str]) -> str:
        return script(table.catalog, texts)


SQL_SERVER_TABLES = SqlServerTables()
