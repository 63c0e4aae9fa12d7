"""PostgreSQL's tables: what a sweep needs of them, how they are created, and the facts that the
doctor judges.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from duesweep.checks.postgresql import PostgreSqlFacts, SequenceFacts, ZoneFacts
from duesweep.checks.table_findings import TableFacts
from duesweep.checks.tables import (
    POSTGRESQL_QUEUE_RIGHTS,
    Columns,
    FoundTable,
    WantedIndex,
    WantedTable,
)
from duesweep.checks.time_outs import TimeOut
from duesweep.core.account import FORMAT_MARK
from duesweep.core.address import TableName, quote_name
from duesweep.core.errors import ConfigError, StoreError
from duesweep.core.policy import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.postgresql.session import (
    PostgreSqlSession,
    column_lists,
    connect,
    connect_as_server,
    find_table,
    literal,
    similar_tables,
    text_of,
)
from duesweep.drivers.statements import Session
from duesweep.stores.checks import read_clock, wanted_tables
from duesweep.stores.dialect import Location, Tables
from duesweep.stores.kinds import TableKind, destinations
from duesweep.stores.zone import writer_time_zone

# Identifiers are cut after this many bytes, which would give an index its table's name.
_NAME_BYTES = 63


def _columns(session: PostgreSqlSession, table: TableName) -> Collection[str] | None:
    found = find_table(session, table)
    return None if found is None else found.columns


def _estimate_rows(session: PostgreSqlSession, table: TableName) -> int:
    return int(session.row("estimate_rows", schema=table.schema, table=table.table).rows)


def _with_indexes(session: PostgreSqlSession, table: TableName, found: FoundTable) -> FoundTable:
    indexes = session.rows("describe_indexes", schema=table.schema, table=table.table)
    return replace(
        found,
        indexed=frozenset(row.column_name for row in indexes if not row.is_partial),
        indexed_in_part=frozenset(row.column_name for row in indexes if row.is_partial),
    )


def _due_index(kind: TableKind, delayed: TableName) -> WantedIndex:
    return WantedIndex(
        kind.due,
        "every look for what is due reads the whole table",
        f"CREATE INDEX CONCURRENTLY ON {delayed} ({kind.names['due']})",
    )


def _creation(name: str, /, **tables: TableName) -> str:
    index = {"index": _index_name(tables["delayed"])} if "delayed" in tables else {}
    text = text_of(name, {**tables, **index})
    return text + _mark(tables["journal"]) if "journal" in tables else text


def _script(dsn: str, creations: Iterable[Sequence[str]]) -> str:  # noqa: ARG001 - it names no database
    """The server's notices on what exists already are left out."""
    texts = filter(None, map("".join, creations))
    return "\n".join(["SET client_min_messages = warning;", *texts])


def _create(
    session: Session,
    new: Sequence[TableName],
    scripts: Sequence[tuple[Sequence[TableName], Sequence[str]]],
) -> None:
    """Refuses before it creates anything."""
    for schema in sorted({table.schema for table in new}):
        _check_schema(session, schema)
    for _, texts in scripts:
        session.script("".join(texts))


def _grants(
    role: str, rights: Mapping[TableName, Sequence[str]], queues: Sequence[TableName]
) -> str:
    user = quote_name(role)
    schemas = sorted({quote_name(table.schema) for table in rights})
    return "\n".join(
        [
            *(f"GRANT USAGE ON SCHEMA {schema} TO {user};" for schema in schemas),
            *(f"GRANT {', '.join(rights[t])} ON {t} TO {user};" for t in rights),
            *(_grant_sequence(queue, user) for queue in queues),
        ]
    )


def _check_schema(session: Session, schema: str) -> None:
    rows = session.rows("describe_schema", schema=schema)
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


def check_session(session: Session, setting: str, location: Location | None = None) -> None:
    """Raise `ConfigError` for a database that takes no writes, or whose text has no encoding, and
    for a time zone that it does not know; `setting` is the one that names the database.
    """
    about = session.row("describe_session")
    if about.is_read_only:
        raise ConfigError(
            f"The session that {setting} opens is read-only",
            advice="connect to the primary server, with a role that may write",
        )
    if about.encoding == "SQL_ASCII":
        raise ConfigError(
            f"The database that {setting} names is encoded in SQL_ASCII, so its headers may be no "
            "text at all",
            advice="move the endpoint to a database encoded in UTF8",
        )
    if location is not None and location.writer_time_zone is not None:
        _check_zone(session, location.writer_time_zone)


def _check_zone(session: Session, zone: str) -> None:
    try:
        with session.transaction():
            session.row("set_zone", zone=zone)
    except StoreError as error:
        if error.transient:
            raise
        raise ConfigError(
            f"store.writer_time_zone is {zone!r}, which PostgreSQL does not know",
            advice="give a name out of pg_timezone_names",
        ) from error


POSTGRESQL_TABLES = Tables(
    check_session=check_session,
    find=find_table,
    with_indexes=_with_indexes,
    columns=_columns,
    estimate_rows=_estimate_rows,
    similar=similar_tables,
    creation=_creation,
    script=_script,
    create=_create,
    grants=_grants,
    due_index=_due_index,
    index_creation=None,
    queue_rights=POSTGRESQL_QUEUE_RIGHTS,
    body_string="bodystring",
)


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
        found = _with_indexes(connection, table, found)
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
