"""SQL Server's tables: how they are created, and all possible faults of them and of a database."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from duesweep.core.address import SqlServerTable, bracket_name
from duesweep.core.errors import ConfigError, StoreError, UnusualBatchError
from duesweep.core.finding import Check, Finding, fault, warning
from duesweep.core.format import JOURNAL_FORMAT, format_mark
from duesweep.drivers.sqlserver.binding import creation, script
from duesweep.drivers.sqlserver.session import SqlServerSession
from duesweep.drivers.statements import Columns, FoundTable, Names, Session
from duesweep.stores.dialect import (
    TRIAL_MESSAGE,
    Indexed,
    Location,
    Tables,
    WantedIndex,
    WantedTable,
)
from duesweep.stores.kinds import TableKind
from duesweep.stores.tables import missing_rights, risky_hooks

# In queues of the older shape this column is NOT NULL and has no default.
RECOVERABLE = "Recoverable"
# The views of some servers do not have longer names.
_LONG_BYTES = 63


class SqlServerTables(Tables):
    """SQL Server's: `setup` creates a missing index on Due."""

    has_older_queues = True
    counts_inserts = False
    body_string = "BodyString"

    def check_session(self, session: SqlServerSession, setting: str) -> Iterator[Finding]:
        about = session.row("describe_session")
        if about.updateability == "READ_ONLY":
            yield fault(
                Check.SERVER_WRITABLE,
                setting,
                f"The database that {setting} names is read-only",
                "connect to the primary replica, without ApplicationIntent=ReadOnly",
                stops=True,
            )
        try:
            session.rows("read_lists", words="1", numbers="[1]")
        except StoreError as error:
            if error.transient:
                raise
            yield fault(
                Check.SERVER_VERSION,
                setting,
                f"The database that {setting} names cannot read lists and JSON ({error}): SQL "
                f"Server {about.version}, compatibility level {about.compatibility_level}",
                "use SQL Server 2017 or newer, and run "
                f"{_alter(about.database_name)} COMPATIBILITY_LEVEL = 130 or more",
                stops=True,
            )

    def more_findings(
        self,
        session: SqlServerSession,
        setting: str,
        store: Location | None,  # noqa: ARG002 - no setting of a store is the server's
        queue_columns: Columns,  # noqa: ARG002 - its numbers have 64 bits
    ) -> Iterator[Finding]:
        about = session.row("describe_session")
        database = _alter(about.database_name)
        if about.delayed_durability == "FORCED":
            yield warning(
                Check.DURABILITY,
                setting,
                "DELAYED_DURABILITY is FORCED: a crash of the server loses its last commits, and "
                "messages that were reported as delivered",
                statements=[f"{database} DELAYED_DURABILITY = ALLOWED"],
            )
        if not about.is_read_committed_snapshot:
            when = "while no other session is connected"
            statement = f"{database} READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK AFTER 10 SECONDS"
            yield warning(
                Check.READ_COMMITTED_SNAPSHOT,
                setting,
                "READ_COMMITTED_SNAPSHOT is off: other readers wait for the rows that a batch "
                "locks, and batches wait for theirs. Sweeps work either way, because a claim skips "
                "locked rows; plans, counts and other queries wait",
                f"{when}: {statement}; or accept it with --ignore {Check.READ_COMMITTED_SNAPSHOT}",
                statements=[f"-- Only {when}:\n{statement}"],
            )

    def find(
        self, session: SqlServerSession, wanted: Sequence[WantedTable]
    ) -> Mapping[SqlServerTable, FoundTable]:
        """All tables of a database in one round trip. In one that this user cannot open it sees
        no table.
        """
        found = {}
        for catalog in dict.fromkeys(one.table.catalog for one in wanted):
            of_catalog = [one for one in wanted if one.table.catalog == catalog]
            try:
                answers = _describe(session, of_catalog)
            except StoreError:
                database = session.row("describe_catalog", catalog=catalog)
                if database.found and database.is_open:
                    raise
                continue
            for one, (rows, rights) in zip(of_catalog, answers, strict=True):
                if rows:
                    # Some servers give the columns of long names in lower case.
                    written = {c.lower(): c for c in one.columns} if _is_long(one.table) else {}
                    found[one.table] = FoundTable(
                        is_table=all(row.kind == "BASE TABLE" for row in rows),
                        columns={
                            written.get(row.name.lower(), row.name): row.type.lower()
                            for row in rows
                        },
                        mark=rows[0].mark,
                        faults=list(_faults(session, one, rows[0], rights)),
                    )
        return found

    def indexes(
        self, session: SqlServerSession, table: SqlServerTable, found: FoundTable
    ) -> Indexed:
        rows = _in(session, table).rows("describe_indexes", name=table.sql)
        # Some servers give the names of an index's columns in lower case.
        written = {name.lower(): name for name in found.columns}
        return {(written[row.column_name.lower()], bool(row.is_partial)) for row in rows}

    def similar(self, session: SqlServerSession, table: SqlServerTable) -> Sequence[SqlServerTable]:
        ending = "." + table.table.rpartition(".")[2] if "." in table.table else table.table
        rows = _in(session, table).rows("similar_tables", ending=ending)
        return [replace(table, schema=row.schema, table=row.name) for row in rows]

    def put_trial(
        self, session: SqlServerSession, table: SqlServerTable, found: FoundTable
    ) -> None:
        kind = "insert_recoverable_message" if RECOVERABLE in found.columns else "insert_message"
        session.insert_messages(table, kind, {"queue": table.sql}, [TRIAL_MESSAGE])

    def remove_any(self, statements: Session) -> int | None:
        # A trigger would change the count of none.
        return statements.execute("remove_any") or None

    # Creating them.

    def creation(self, name: str, /, **tables: SqlServerTable) -> str:
        marks = {"first_format": format_mark(1), "format": format_mark(JOURNAL_FORMAT)}
        return creation(name, marks, **tables)

    def script(self, table: SqlServerTable, texts: Iterable[str]) -> str:
        return script(table.catalog, texts)

    def create(
        self,
        session: Session,
        new: Sequence[SqlServerTable],  # noqa: ARG002 - each of the scripts looks itself
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
                    f"{', '.join(table.sql for table in tables)} cannot be created or altered: "
                    f"{error}",
                    advice=(
                        f"check that there is a schema {schema} in database {catalog}, and grant "
                        "CREATE TABLE and VIEW DEFINITION, and ALTER on the schema, or have an "
                        f"administrator run what --print-sql prints; or correct {named_by}"
                    ),
                ) from error

    def grants(
        self,
        role: str,
        rights: Mapping[SqlServerTable, Sequence[str]],
        queues: Sequence[SqlServerTable],  # noqa: ARG002 - they take no more
    ) -> str:
        """In batches."""
        lines = []
        for catalog in sorted({table.catalog for table in rights}):
            # GRANT takes no table of another database.
            lines += ["GO", f"USE {bracket_name(catalog)};"]
            lines += [
                f"GRANT {', '.join(rights[table])} ON {_beside(table)} TO {bracket_name(role)};"
                for table in rights
                if table.catalog == catalog
            ]
        return "\n".join(lines)

    def due_index(self, kind: TableKind, delayed: SqlServerTable) -> WantedIndex:
        names = {"due": kind.names["due"], "index": bracket_name(kind.index)}
        return WantedIndex(
            kind.due,
            "every search for due messages reads the whole table, and a claim locks more of it",
            f"CREATE NONCLUSTERED INDEX {names['index']} ON {delayed.sql} ({names['due']})",
            setup=creation("create_due_index", names, delayed=delayed),
        )


SQL_SERVER_TABLES = SqlServerTables()


def _alter(database: str) -> str:
    """The beginning of a statement that changes a database."""
    return f"ALTER DATABASE {bracket_name(database)} SET"


def _in(session: SqlServerSession, table: SqlServerTable) -> SqlServerSession:
    """The statements about the catalog of a table's database."""
    return session.named({"catalog": bracket_name(table.catalog)})


def _describe(
    session: SqlServerSession, wanted: Sequence[WantedTable]
) -> Sequence[tuple[Sequence[Any], Sequence[Any]]]:
    """For each of some tables of one database its columns, none if this user sees no such table,
    and its rights, as far as some are wanted.
    """
    statements = _in(session, wanted[0].table)
    asked: list[tuple[str, Mapping[str, object], Names]] = []
    for one in wanted:
        values = {"schema": one.table.schema, "table": one.table.table, "name": one.name}
        asked.append(("describe_table", values, {}))
        if one.rights:
            named = {"name": one.name, "local": _beside(one.table), "catalog": one.table.catalog}
            asked.append(("describe_rights", named, {}))
    try:
        answers = iter(statements.rows_of_each(*asked, what="describe_table"))
    except UnusualBatchError as error:
        # No batch is at fault here.
        raise (error.__cause__ or error) from None
    found = []
    for one in wanted:
        rows, rights = next(answers), next(answers) if one.rights else []
        if not rows and _is_long(one.table):
            rows = statements.rows("describe_long_name", name=one.name)
        found.append((rows, rights))
    return found


def _is_long(table: SqlServerTable) -> bool:
    return len(table.table.encode()) > _LONG_BYTES


def _faults(
    session: SqlServerSession, wanted: WantedTable, row: Any, rights: Sequence[Any]
) -> Iterator[Finding]:
    """The faults of a table by a row of the catalog, and the rights on it."""
    if missing := [one for one in rights if one.name in wanted.rights and not one.is_granted]:
        lacking, user = [one.name for one in missing], bracket_name(missing[0].grantee)
        # GRANT takes no table of another database.
        use = f"USE {bracket_name(wanted.table.catalog)};"
        grant = f"{use} GRANT {', '.join(lacking)} ON {_beside(wanted.table)} TO {user}"
        yield missing_rights(wanted, lacking, [grant])
    if row.policies:
        yield from _hidden(session, [wanted.table])
    if row.hook and "DELETE" not in wanted.rights:
        yield risky_hooks(wanted.name, [f"trigger {row.hook}"])
    elif row.hook:
        # It cannot return the removed rows.
        yield fault(
            Check.TABLE_TRIGGERS,
            wanted.name,
            f"{wanted.name} does not run the statements of a sweep, and the server raises no "
            f"error: trigger {row.hook} drops it",
            "let it return the row, or drop it",
            stops=True,
        )


def _hidden(session: SqlServerSession, tables: Sequence[SqlServerTable]) -> Iterator[Finding]:
    """The tables of one schema whose rows a security policy hides from this user."""
    known = {table.table.lower(): table for table in tables}
    for row in _in(session, tables[0]).rows("hidden_tables", schema=tables[0].schema):
        if (table := known.get(row.table.lower())) is not None:
            policy = f"{bracket_name(row.policy_schema)}.{bracket_name(row.policy)}"
            does, kind = ("filters", "FILTER") if row.is_filtered else ("blocks", "BLOCK")
            statement = f"ALTER SECURITY POLICY {policy} DROP {kind} PREDICATE ON {_beside(table)}"
            text = f"The security policy {policy} {does} rows of {table.sql}"
            yield fault(Check.ROW_SECURITY, table.sql, text, statements=[statement], stops=True)


def _beside(table: SqlServerTable) -> str:
    """A table's name in its own database."""
    return f"{bracket_name(table.schema)}.{bracket_name(table.table)}"
