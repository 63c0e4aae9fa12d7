"""Creates what NServiceBus's installers would create for an endpoint, plus the journal."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from duesweep.checks.tables import SQL_SERVER_QUEUE_RIGHTS
from duesweep.core.address import SqlServerTable, bracket_name
from duesweep.core.format import FORMAT_MARK
from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.sqlserver.binding import creation, script
from duesweep.drivers.sqlserver.catalog import find_table, is_there
from duesweep.drivers.sqlserver.dsn import database_of
from duesweep.drivers.sqlserver.session import SqlServerSession, connect
from duesweep.drivers.statements import journal_columns
from duesweep.errors import ConfigError, Problem, StoreError
from duesweep.stores.checks import refuse_newer_format
from duesweep.stores.checks_sqlserver import check_session, wanted_tables
from duesweep.stores.dialect import Location, journal_tables
from duesweep.stores.installed import Completed, IndexCreated, Unbound
from duesweep.stores.sqlserver import find_delayed
from duesweep.stores.sqlserver.due_index import create_due_index, due_index_script

# A computed column, which people can read.
_BODY_STRING = "BodyString"
# Tables with the columns that each has to have, and the statements that create or complete them.
_Creation = tuple[Mapping[SqlServerTable, Collection[str]], Sequence[str]]


@dataclass(frozen=True, slots=True)
class SqlServerSetup:
    """What one server has to hold: queues, the table of subscriptions, and the store's tables if it
    is the store's.

    `setting` is the one that names the server. `readable` are those of the queues that have a
    column with the body as text.
    """

    dsn: str = field(repr=False)
    setting: str
    queues: tuple[SqlServerTable, ...] = ()
    store: Location | None = None
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    subscriptions: SqlServerTable | None = None
    readable: tuple[SqlServerTable, ...] = ()

    def script(self) -> str:
        """All statements, in batches as the command-line tools of SQL Server take them."""
        delayed = self.store.candidates[0] if self.store else None
        texts = [text for _, several in self._creations(delayed) for text in several]
        if self.store is not None and delayed is not None and self.store.kind.create is not None:
            texts.append(due_index_script(self.store.kind, delayed))
        return script(database_of(self.dsn), texts)

    def grants(self, role: str) -> str:
        """The statements that grant a database user what sweeps need on this server, in batches."""
        tables = dict.fromkeys(self.queues, SQL_SERVER_QUEUE_RIGHTS)
        if self.store is not None:
            found = wanted_tables(self.store.kind, self.store.candidates[0])
            tables |= {table: wanted.rights for table, wanted in found}
        lines = []
        for catalog in sorted({table.catalog for table in tables}):
            # GRANT takes no table of another database.
            lines += ["GO", f"USE {bracket_name(catalog)};"]
            lines += [
                f"GRANT {', '.join(rights)} ON {bracket_name(table.schema)}."
                f"{bracket_name(table.table)} TO {bracket_name(role)};"
                for table, rights in tables.items()
                if table.catalog == catalog
            ]
        return "\n".join(lines)

    def install(
        self, *, rebind: bool
    ) -> Sequence[SqlServerTable | Completed | IndexCreated | Problem | Unbound]:
        """Create what is missing; returns the tables that were created or completed, the index that
        was created, or why it was not. `rebind` frees the source, and the last value returned says
        so.

        Raises `ConfigError` where this user may not.
        """
        with connect(self.dsn, self.timeouts.driver) as connection:
            check_session(connection, self.setting)
            delayed = find_delayed(connection, self.store) if self.store else None
            if delayed is not None:
                table = journal_tables(delayed)["journal"]
                refuse_newer_format(table.sql, find_table(connection, table))
            created = _create_missing(connection, self._creations(delayed))
            if self.store is None or delayed is None:
                return created
            indexes = list(create_due_index(connection, self.store, delayed))
            unbound = [_unbind(connection, self.store, delayed)] if rebind else []
        return [*created, *indexes, *unbound]

    def _creations(self, delayed: SqlServerTable | None) -> Iterator[_Creation]:
        if self.store is not None and delayed is not None:
            create = self.store.kind.create
            if create is not None:
                yield {delayed: ()}, [creation(create, delayed=delayed)]
            journal = journal_tables(delayed)
            columns = {table: journal_columns("sqlserver")[name] for name, table in journal.items()}
            own = {"format": FORMAT_MARK}
            yield columns, [creation("create_journal", own, **journal)]
        if self.subscriptions is not None:
            text = creation("create_subscriptions", subscriptions=self.subscriptions)
            yield {self.subscriptions: ()}, [text]
        for queue in self.queues:
            text = creation("create_queue", queue=queue)
            if queue in self.readable:
                # One statement after the other: both declare the same variable.
                yield {queue: {_BODY_STRING}}, [text, creation("add_body_string", queue=queue)]
            else:
                yield {queue: ()}, [text]


def _unbind(connection: SqlServerSession, store: Location, delayed: SqlServerTable) -> Unbound:
    statements = connection.named(store.names(delayed))
    rows = statements.rows("read_binding", source=store.source)
    statements.execute("unbind", source=store.source)
    return Unbound(store.source, UUID(str(rows[0].ledger_id)) if rows else None)


def _create_missing(
    connection: SqlServerSession, creations: Iterator[_Creation]
) -> list[SqlServerTable | Completed]:
    done: list[SqlServerTable | Completed] = []
    for tables, texts in creations:
        was_there = {table for table in tables if is_there(connection, table)}
        lacking = [
            table
            for table, columns in tables.items()
            if table not in was_there or not _has_columns(connection, table, columns)
        ]
        if lacking:
            _create(connection, lacking, texts)
            done += [Completed(t.sql) if t in was_there else t for t in lacking]
    return done


def _has_columns(
    connection: SqlServerSession, table: SqlServerTable, columns: Collection[str]
) -> bool:
    if not columns:
        return True
    found = find_table(connection, table)
    return found is not None and set(found.columns).issuperset(columns)


def _create(
    connection: SqlServerSession, tables: Sequence[SqlServerTable], texts: Sequence[str]
) -> None:
    try:
        for text in texts:
            connection.script(text)
    except StoreError as error:
        if error.transient:
            raise
        raise ConfigError(
            f"{', '.join(table.sql for table in tables)} cannot be created or altered: {error}",
            advice=(
                "grant CREATE TABLE and VIEW DEFINITION, and ALTER on the schema, or have an "
                "administrator run what `setup --print-sql` prints"
            ),
        ) from error
