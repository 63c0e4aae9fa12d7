"""Creates what NServiceBus's installers would create for an endpoint, plus the journal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from duesweep.core.address import SqlServerTable, bracket_name
from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.sqlserver import SqlServerConnection, connect, database_of
from duesweep.errors import ConfigError, StoreError
from duesweep.sql import statement
from duesweep.stores.relational.shapes import journal_columns
from duesweep.stores.sqlserver.location import SqlServerLocation, journal_tables, name_literal
from duesweep.stores.sqlserver.table import (
    check_session,
    columns_of,
    find_delayed,
    is_there,
)
from duesweep.stores.values import Completed, Unbound

# Command-line tools begin without the first, and then refuse an index with a condition.
_PREAMBLE = """SET QUOTED_IDENTIFIER ON;
SET ANSI_NULLS ON;
USE {catalog};
"""
# A lock's name is cut after 255 characters.
_LOCK_NAME = 250
_Creation = tuple[Sequence[SqlServerTable], str]


@dataclass(frozen=True, slots=True)
class SqlServerSetup:
    """What is to be on one server: a store's tables, if it is the store's, and queues.

    `setting` is the one that names the server.
    """

    dsn: str = field(repr=False)
    setting: str
    queues: tuple[SqlServerTable, ...] = ()
    store: SqlServerLocation | None = None
    timeouts: Timeouts = DEFAULT_TIMEOUTS

    def script(self) -> str:
        """All statements, in batches as the command-line tools of SQL Server take them."""
        delayed = self.store.candidates[0] if self.store else None
        texts = [_PREAMBLE.format(catalog=bracket_name(database_of(self.dsn)))]
        return "GO\n".join([*texts, *(text for _, text in self._creations(delayed))])

    def install(self, *, rebind: bool) -> Sequence[SqlServerTable | Completed | Unbound]:
        """Create what is missing; the tables made or completed. `rebind` frees the source,
        and says so last.

        Raises `ConfigError` where this user may not.
        """
        with connect(self.dsn, self.timeouts.driver) as connection:
            check_session(connection, self.setting)
            delayed = find_delayed(connection, self.store) if self.store else None
            created = _create_missing(connection, self._creations(delayed))
            if rebind and self.store is not None and delayed is not None:
                return [*created, _unbind(connection, self.store, delayed)]
        return created

    def _creations(self, delayed: SqlServerTable | None) -> Iterator[_Creation]:
        if self.store is not None and delayed is not None:
            create = self.store.kind.create
            if create is not None:
                yield [delayed], creation(create, delayed=delayed)
            journal = journal_tables(delayed)
            yield list(journal.values()), creation("create_journal", **journal)
        for queue in self.queues:
            yield [queue], creation("create_queue", queue=queue)


def creation(name: str, **tables: SqlServerTable) -> str:
    """The named statement, with the names of tables as they stand in it: bracketed, and for the
    inside of literals.
    """
    names: dict[str, str] = {}
    for key, table in tables.items():
        literal = name_literal(table)
        names |= {key: table.sql, f"{key}_literal": literal, f"{key}_lock": lock_of(table)}
    return statement("sqlserver", name).format(**names)


def lock_of(table: SqlServerTable) -> str:
    """The name of the lock under which a table is made: the transport's own, within its length."""
    name = f"{table.sql[:_LOCK_NAME]}_lock"
    return name.replace("'", "''")


def _unbind(
    connection: SqlServerConnection, store: SqlServerLocation, delayed: SqlServerTable
) -> Unbound:
    names = store.names(delayed)
    rows = connection.rows("read_binding", names, source=store.source)
    connection.execute("unbind", names, source=store.source)
    return Unbound(store.source, UUID(str(rows[0].ledger_id)) if rows else None)


def _create_missing(
    connection: SqlServerConnection, creations: Iterator[_Creation]
) -> list[SqlServerTable | Completed]:
    done: list[SqlServerTable | Completed] = []
    for tables, text in creations:
        lacking = [table for table in tables if not _is_complete(connection, table)]
        was_there = {table for table in lacking if is_there(connection, table)}
        if lacking:
            _create(connection, lacking, text)
            done += [Completed(t.sql) if t in was_there else t for t in lacking]
    return done


def _is_complete(connection: SqlServerConnection, table: SqlServerTable) -> bool:
    """Whether the table is there; one of duesweep's own, with the columns of this version."""
    if not is_there(connection, table):
        return False
    own = {f"duesweep_{name}": wanted for name, wanted in journal_columns("sqlserver").items()}
    if table.table not in own:
        return True
    found = {name.lower() for name in columns_of(connection, table)}
    return found >= own[table.table].keys()


def _create(connection: SqlServerConnection, tables: Sequence[SqlServerTable], text: str) -> None:
    try:
        connection.script(text)
    except StoreError as error:
        if error.transient:
            raise
        raise ConfigError(
            f"{', '.join(table.sql for table in tables)} cannot be created: {error}",
            advice=(
                "grant CREATE TABLE and ALTER on the schema, or have an administrator run "
                "what `setup --print-sql` prints"
            ),
        ) from error
