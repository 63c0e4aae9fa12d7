"""PostgreSQL's tables: how they are created, and all possible faults of them and of a database."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from duesweep.core.address import TableName, quote_name
from duesweep.core.errors import (
    ConfigError,
    MissingRightError,
)
from duesweep.core.finding import (
    Check,
    Finding,
    Severity,
    fault,
    fault_of,
    skipped,
    warning,
)
from duesweep.core.format import JOURNAL_FORMAT, format_mark
from duesweep.core.quantities import count_text
from duesweep.drivers.postgresql.session import PostgreSqlSession, text_of
from duesweep.drivers.postgresql.start import SEARCH_PATH, WIDE_ENCODINGS, literal
from duesweep.drivers.statements import Columns, FoundTable, Keys, Session
from duesweep.stores.dialect import (
    TRIAL_MESSAGE,
    Indexed,
    Location,
    Tables,
    WantedIndex,
    WantedTable,
)
from duesweep.stores.kinds import TableKind
from duesweep.stores.tables import missing_rights
from duesweep.stores.zone import agree, horizon_in, writer_time_zone

# gen_random_uuid() came with this one.
_OLDEST_VERSION = 130_000
_WARN_AT, _FAULT_AT = 0.5, 0.9
# Ordinary and partitioned tables. Foreign tables know neither SKIP LOCKED nor a common
# transaction; views have no rows of their own.
_TABLE_KINDS = {"r", "p"}
# The part of a server's certificate that is not checked.
_UNCHECKED = {"require": "certificate", "verify-ca": "name in the server's certificate"}
_MOVE = "move the endpoint to a database encoded in UTF8"
# Identifiers are cut after this many bytes, which would give an index its table's name.
_NAME_BYTES = 63


class PostgreSqlTables(Tables):
    """PostgreSQL's: the index on Due comes with the table."""

    body_string = "bodystring"
    at_once = "check_constraints_at_once"

    def check_session(self, session: PostgreSqlSession, setting: str) -> Iterator[Finding]:
        about = session.row("describe_session")
        if about.version_number < _OLDEST_VERSION:
            yield fault(
                Check.SERVER_VERSION,
                setting,
                f"PostgreSQL {about.version} is too old for the statements of a sweep",
                "upgrade to PostgreSQL 13 or newer",
            )
        if about.is_read_only:
            what = "on a replica " if about.is_replica else ""
            yield fault(
                Check.SERVER_WRITABLE,
                setting,
                f"The session that {setting} opens {what}is read-only",
                "connect to the primary server, with a role that may write",
                stops=True,
            )
        if about.encoding == "SQL_ASCII":
            yield fault(
                Check.TEXT_ENCODING,
                setting,
                f"The database that {setting} names is encoded in SQL_ASCII, so its headers may "
                "be no text at all",
                _MOVE,
                stops=True,
            )

    def find(
        self, session: PostgreSqlSession, wanted: Sequence[WantedTable]
    ) -> Mapping[TableName, FoundTable]:
        by_table = {one.table: one for one in wanted}
        rows = session.rows(
            "describe_tables",
            schemas=[table.schema for table in by_table],
            tables=[table.table for table in by_table],
            rights=[",".join(one.rights) for one in by_table.values()],
        )
        found = {TableName(row.schema, row.table): row for row in rows}
        return {
            table: FoundTable(
                is_table=row.kind in _TABLE_KINDS,
                columns=dict(zip(row.column_names, row.column_types, strict=True)),
                mark=row.mark,
                has_rules=row.has_rules,
                hooks=row.hooks,
                faults=list(_faults(by_table[table], row)),
            )
            for table, row in found.items()
        }

    def indexes(
        self,
        session: PostgreSqlSession,
        table: TableName,
        found: FoundTable,  # noqa: ARG002 - names are as they were written
    ) -> Indexed:
        rows = session.rows("describe_indexes", schema=table.schema, table=table.table)
        return {(row.column_name, row.is_partial) for row in rows}

    def similar(self, session: PostgreSqlSession, table: TableName) -> Sequence[TableName]:
        name = table.table
        ending = "." + name.rpartition(".")[2] if "." in name else name
        rows = session.rows("similar_tables", ending=ending)
        return [TableName(row.schema, row.name) for row in rows]

    def put_trial(self, session: PostgreSqlSession, table: TableName, found: FoundTable) -> None:  # noqa: ARG002 - like others
        session.insert_messages(table, [TRIAL_MESSAGE])

    def remove_any(self, statements: Session) -> int | None:
        keys = Keys(row.id for row in statements.rows("lock_any"))
        return statements.execute("remove", keys=keys) if keys else None

    def more_findings(
        self,
        session: PostgreSqlSession,
        setting: str,
        store: Location | None,
        queue_columns: Columns,
    ) -> Iterator[Finding]:
        about = session.row("describe_session")
        if not about.is_synced:
            yield warning(
                Check.DURABILITY,
                setting,
                "fsync is off: a crash of the server's machine loses or damages messages that were "
                "reported as delivered",
                "set fsync = on in the server's configuration, and reload it",
            )
        sslmode = session.tls.get("sslmode", "")
        if session.is_encrypted and sslmode in _UNCHECKED:
            yield warning(
                Check.SERVER_CERTIFICATE,
                setting,
                f"The session is encrypted, but the {_UNCHECKED[sslmode]} is not checked "
                f"(sslmode {sslmode}): another server could take this one's place, and be sent "
                "messages and the password",
                f"set sslmode=verify-full in {setting}, and sslrootcert to the file of its "
                "authority, or to system for the machine's authorities",
            )
        if about.encoding.startswith(WIDE_ENCODINGS):
            yield warning(
                Check.TEXT_ENCODING,
                setting,
                f"Text is {about.encoding}: headers with a character that has no equivalent in "
                "UTF-8 would stop all messages",
                _MOVE,
            )
        if store is not None and store.kind.time_zone is None:
            yield from _zones(session, setting, store)
        yield from _headroom(
            setting, session.rows("doctor_sequences", **column_lists(queue_columns))
        )

    # Creating them.

    def creation(self, name: str, /, **tables: TableName) -> str:
        index = {"index": _index_name(tables["delayed"])} if "delayed" in tables else {}
        text = text_of(name, {**tables, **index})
        return text + _mark(tables["journal"]) if "journal" in tables else text

    def script(self, table: TableName, texts: Iterable[str]) -> str:  # noqa: ARG002 - it names no database
        """The server's notices on existing tables are left out. An administrator runs them, so no
        function may be another one than the server's own.
        """
        settings = [f"SET search_path = {SEARCH_PATH};", "SET client_min_messages = warning;"]
        return "\n".join([*settings, *texts])

    def create(
        self,
        session: Session,
        new: Sequence[TableName],
        scripts: Sequence[tuple[Sequence[TableName], Sequence[str]]],
        named_by: str,
    ) -> None:
        """Refuses before it creates anything. Takes the advisory locks that the transport itself
        takes to create or alter these tables.
        """
        for schema in sorted({table.schema for table in new}):
            _check_schema(session, schema, [t for t in new if t.schema == schema], named_by)
        for tables, texts in scripts:
            try:
                with session.transaction():
                    for table in tables:
                        session.rows("lock_creation", lock_key=_creation_lock(str(table)))
                    session.script("".join(texts))
            except MissingRightError as error:
                raise ConfigError(
                    f"{', '.join(map(str, tables))} cannot be created or altered: {error.text}",
                    advice="have their owner run `duesweep setup`, or an administrator the output "
                    "of `duesweep setup --print-sql`",
                ) from error

    def grants(
        self, role: str, rights: Mapping[TableName, Sequence[str]], queues: Sequence[TableName]
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

    def due_index(self, kind: TableKind, delayed: TableName) -> WantedIndex:
        return WantedIndex(
            kind.due,
            "every search for due messages reads the whole table",
            f"CREATE INDEX CONCURRENTLY ON {delayed} ({kind.names['due']})",
        )


POSTGRESQL_TABLES = PostgreSqlTables()


def column_lists(columns: Columns) -> dict[str, list[str]]:
    """The values of statements that look for tables with these columns."""
    return {
        "typed": [f"{name} {kind}" for name, kinds in columns.items() for kind in kinds],
        "named": [name for name, kinds in columns.items() if not kinds],
    }


def _faults(wanted: WantedTable, row: Any) -> Iterator[Finding]:
    """The faults of a table by its row of the catalog."""
    name, role = wanted.name, quote_name(row.role)
    if row.is_unlogged:
        text = "It is unlogged: a crash of its server empties it"
        yield warning(Check.DURABILITY, name, text, statements=[f"ALTER TABLE {name} SET LOGGED"])
    lacking, grants = [*row.missing_rights], list[str]()
    if lacking:
        schema = quote_name(wanted.table.schema)
        grants.append(f"GRANT {', '.join(lacking)} ON {name} TO {role}")
        grants.append(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    for sequence in row.missing_sequences:
        lacking.append(f"USAGE on its sequence {sequence}")
        grants.append(f"GRANT USAGE ON SEQUENCE {sequence} TO {role}")
    if lacking:
        yield missing_rights(wanted, lacking, grants)
    if row.hidden_by is not None:
        by = f", by its restrictive policy {row.hidden_by[0]}" if row.hidden_by else ""
        ways = [f"ALTER ROLE {role} BYPASSRLS"]
        if not by:
            # It does not lift a restrictive one.
            policy = f"CREATE POLICY duesweep ON {name} TO {role} USING (true) WITH CHECK (true)"
            ways.insert(0, policy)
        text = f"Row-level security hides or refuses rows of {name} for role {role}{by}"
        advice = f"run {', or '.join(ways)}"
        yield fault(Check.ROW_SECURITY, name, text, advice, statements=ways[:1], stops=True)
    add_key = f"ALTER TABLE {name} ADD PRIMARY KEY ({wanted.key})"
    if row.published is not None:
        identity = f"ALTER TABLE {row.published} REPLICA IDENTITY DEFAULT"
        yield fault(
            Check.REPLICA_IDENTITY,
            name,
            f"{row.published} is in a publication and has no replica identity, so the server "
            "refuses to change and to delete its rows",
            statements=[identity if row.has_primary_key else add_key],
            stops=True,
        )
    elif not row.has_key and wanted.is_journal:
        text = f"{name} has no primary key: its rows could be there twice"
        yield fault(Check.TABLE_INDEX, name, text, statements=[add_key], stops=True)
    elif not row.has_key and wanted.key is not None:
        text = "It has no primary key: to find messages by their keys reads the whole table"
        yield warning(Check.TABLE_INDEX, name, text, statements=[add_key])


def _zones(session: PostgreSqlSession, setting: str, store: Location) -> Iterator[Finding]:
    """The time zone of the writers' sessions decides the meaning of a Due."""
    check, override, writers = Check.WRITER_TIME_ZONE, store.writer_time_zone, None
    try:
        writers = writer_time_zone(session, store.dsn, store.delayed)
    except ConfigError as error:
        if override is None:
            yield fault_of(check, setting, error.problem)
            return
    zone = override or str(writers)
    try:
        horizon_in(session, zone)
    except ConfigError as error:
        yield fault_of(check, setting, error.problem)
        return
    if override and writers and not agree(session, {override, writers}):
        yield warning(
            check,
            setting,
            f"store.writer_time_zone is {override}, but the writers' settings say {writers}: if "
            "these are right, messages leave early or late by the difference",
            "leave store.writer_time_zone out, unless the endpoints' connection strings set a zone",
        )
    elif changes := session.row("doctor_zone", zone=zone).minutes:
        yield warning(
            check,
            setting,
            f"Writers use {zone}: across a change of its clocks, messages are early or late by "
            f"{changes} min, by NServiceBus too",
            "wait until no message waits, since each would then leave at another time; then give "
            "the roles that write UTC (ALTER ROLE … SET TimeZone = 'UTC') and restart the "
            "endpoints",
        )


def _headroom(setting: str, sequences: Sequence[Any]) -> Iterator[Finding]:
    """How many numbers are left to `seq` of each queue table. A new sequence has no last one, and
    of one that this role may not read it is unknown.
    """
    if hidden := sum(row.is_hidden for row in sequences):
        text = f"This role may not read the sequences of {count_text(hidden, 'queue table')}"
        yield skipped(Check.SEQ_HEADROOM, setting, text)
    for row in sequences:
        last, table = row.last or 0, TableName(row.schema, row.table)
        if (used := last / int(row.most)) >= _WARN_AT:
            widen = f"ALTER TABLE {table} ALTER COLUMN seq TYPE bigint"
            limit = f"ALTER SEQUENCE {row.sequence} AS bigint MAXVALUE {2**63 - 1}"
            when = "while the queue is short, because this rewrites the table"
            yield Finding(
                Check.SEQ_HEADROOM,
                Severity.FAULT if used >= _FAULT_AT else Severity.WARNING,
                str(table),
                f"Its seq is {row.column_type} and at {last:,}: {row.most - last:,} numbers are "
                f"left ({used:.0%} used), then it accepts no more messages",
                f"run {widen}; {limit}; {when}",
                [f"-- Only {when}:\n{widen}", limit],
            )


def _creation_lock(qualified_name: str) -> int:
    """As the transport's `QueueCreator.CalculateLockId`."""
    digest = hashlib.sha256(qualified_name.encode("utf-16-le")).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


def _check_schema(session: Session, schema: str, new: Sequence[TableName], named_by: str) -> None:
    rows = session.rows("describe_schema", schema=schema)
    if not rows:
        what = str(new[0]) if len(new) == 1 else "tables"
        raise ConfigError(
            f"There is no schema {quote_name(schema)} to create {what} in",
            advice=f"create it, or correct {named_by}",
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
    """The statement that marks the tables with their format. A newer version's mark stays."""
    mark = f"obj_description({literal(str(journal))}::regclass, 'pg_class')"
    is_older = f"coalesce({mark}, '') IN ('', {literal(format_mark(1))})"
    note = f"COMMENT ON TABLE {journal} IS {literal(format_mark(JOURNAL_FORMAT))}"
    return f"DO {literal(f'BEGIN IF {is_older} THEN {note}; END IF; END')};\n"


def _index_name(delayed: TableName) -> str:
    """`<table>_Due` as the transport calls it, shortened where PostgreSQL would cut the end off."""
    suffix = "_Due"
    name = delayed.table.encode()[: _NAME_BYTES - len(suffix)].decode(errors="ignore")
    return quote_name(name + suffix)
