"""Creates what NServiceBus's installers would create for an endpoint, plus the journal."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from duesweep.checks.tables import POSTGRESQL_QUEUE_RIGHTS
from duesweep.core.address import TableName, quote_name
from duesweep.core.format import FORMAT_MARK
from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.postgresql.catalog import find_table
from duesweep.drivers.postgresql.session import PostgreSqlSession, connect, literal, text_of
from duesweep.drivers.statements import journal_columns
from duesweep.errors import ConfigError
from duesweep.stores.checks import refuse_newer_format
from duesweep.stores.checks_postgresql import check_session, wanted_tables
from duesweep.stores.dialect import Location, journal_tables
from duesweep.stores.installed import Completed, Unbound

# Identifiers are cut after this many bytes, which would give an index its table's name.
_NAME_BYTES = 63

# A generated column, which people can read.
_BODY_STRING = "bodystring"
# Tables with the columns that each has to have, and the statements that create or complete them.
_Creation = tuple[Mapping[TableName, Collection[str]], str]


@dataclass(frozen=True, slots=True)
class PostgreSqlSetup:
    """What one database has to hold: queues, the table of subscriptions, and the store's tables if
    it is the store's.

    `setting` is the one that names the database. `readable` are those of the queues that have a
    column with the body as text.
    """

    dsn: str = field(repr=False)
    setting: str
    queues: tuple[TableName, ...] = ()
    store: Location | None = None
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    subscriptions: TableName | None = None
    readable: tuple[TableName, ...] = ()

    def script(self) -> str:
        """All statements. The server's notices on what exists already are left out."""
        texts = [text for _, text in self._creations()]
        return "\n".join(["SET client_min_messages = warning;", *texts])

    def grants(self, role: str) -> str:
        """The statements that grant a role what sweeps need in this database."""
        user = quote_name(role)
        tables = dict.fromkeys(self.queues, POSTGRESQL_QUEUE_RIGHTS)
        if self.store is not None:
            tables |= {table: wanted.rights for table, wanted in wanted_tables(self.store)}
        schemas = sorted({quote_name(table.schema) for table in tables})
        return "\n".join(
            [
                *(f"GRANT USAGE ON SCHEMA {schema} TO {user};" for schema in schemas),
                *(f"GRANT {', '.join(tables[t])} ON {t} TO {user};" for t in tables),
                *(_grant_sequence(queue, user) for queue in self.queues),
            ]
        )

    def install(self, *, rebind: bool) -> Sequence[TableName | Completed | Unbound]:
        """Create what is missing; returns the tables that were created or completed. `rebind` frees
        the source, and the last value returned says so.

        Raises `ConfigError`, before it creates anything, where this role may not.
        """
        with connect(self.dsn, self.timeouts.driver) as connection:
            check_session(connection, self.setting)
            if self.store is not None:
                table = journal_tables(self.store.delayed)["journal"]
                refuse_newer_format(str(table), find_table(connection, table))
            created = _create_missing(connection, list(self._creations()))
            if rebind and self.store is not None:
                return [*created, _unbind(connection, self.store)]
        return created

    def _creations(self) -> Iterator[_Creation]:
        if self.store is not None:
            delayed = self.store.delayed
            create = self.store.kind.create
            if create is not None:
                yield (
                    {delayed: ()},
                    text_of(create, {"delayed": delayed, "index": _index_name(delayed)}),
                )
            journal = journal_tables(delayed)
            columns = {
                table: journal_columns("postgresql")[name] for name, table in journal.items()
            }
            yield columns, text_of("create_journal", journal) + _mark(journal["journal"])
        if self.subscriptions is not None:
            text = text_of("create_subscriptions", {"subscriptions": self.subscriptions})
            yield {self.subscriptions: ()}, text
        for queue in self.queues:
            text = text_of("create_queue", {"queue": queue})
            if queue in self.readable:
                text += text_of("add_body_string", {"queue": queue})
                yield {queue: {_BODY_STRING}}, text
            else:
                yield {queue: ()}, text


def _unbind(connection: PostgreSqlSession, store: Location) -> Unbound:
    statements = connection.named(store.names())
    rows = statements.rows("read_binding", source=store.source)
    statements.execute("unbind", source=store.source)
    return Unbound(store.source, UUID(str(rows[0].ledger_id)) if rows else None)


def _create_missing(
    connection: PostgreSqlSession, creations: Sequence[_Creation]
) -> list[TableName | Completed]:
    done: list[TableName | Completed] = []
    scripts = []
    for tables, text in creations:
        found = {table: _columns(connection, table) for table in tables}
        lacking = [t for t in tables if not found[t] or not found[t].issuperset(tables[t])]
        done += [Completed(table) if found[table] else table for table in lacking]
        if lacking:
            # Only then: even CREATE TABLE IF NOT EXISTS takes the right to create tables.
            scripts.append(text)
    for schema in sorted({table.schema for table in done if isinstance(table, TableName)}):
        _check_schema(connection, schema)
    for text in scripts:
        connection.script(text)
    return done


def _columns(connection: PostgreSqlSession, table: TableName) -> set[str]:
    """The names of a table's columns; none if there is no such table."""
    found = find_table(connection, table)
    return set(found.columns) if found else set()


def _check_schema(connection: PostgreSqlSession, schema: str) -> None:
    rows = connection.rows("describe_schema", schema=schema)
    if not rows:
        raise ConfigError(
            f"There is no schema {quote_name(schema)} to create tables in",
            advice="create it, or correct store.schema or retry.error_queue",
        )
    if not rows[0].may_create:
        raise ConfigError(
            f"This role may not create tables in schema {quote_name(schema)}",
            advice=(
                "grant it USAGE and CREATE there, or have an administrator run what `setup "
                "--print-sql` prints"
            ),
        )


def _grant_sequence(queue: TableName, user: str) -> str:
    # Only the server knows the name of the sequence: it shortens long ones.
    sequence = f"pg_get_serial_sequence({literal(str(queue))}, 'seq')"
    grant = f"'GRANT USAGE ON SEQUENCE ' || {sequence} || {literal(f' TO {user}')}"
    return f"DO {literal(f'BEGIN EXECUTE {grant}; END')};"


def _mark(journal: TableName) -> str:
    """The statement that marks the tables with their format. Another version's mark stays."""
    has_none = f"obj_description({literal(str(journal))}::regclass, 'pg_class') IS NULL"
    note = f"COMMENT ON TABLE {journal} IS {literal(FORMAT_MARK)}"
    return f"DO {literal(f'BEGIN IF {has_none} THEN {note}; END IF; END')};\n"


def _index_name(delayed: TableName) -> str:
    """`<table>_Due` as the transport calls it, shortened where PostgreSQL would cut the end off."""
    suffix = "_Due"
    name = delayed.table.encode()[: _NAME_BYTES - len(suffix)].decode(errors="ignore")
    return quote_name(name + suffix)
