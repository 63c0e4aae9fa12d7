"""PostgreSQL's tables: the needs of a sweep, how they are created, and all possible faults
of a database. A check judges the row of its own statement.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from duesweep.core.account import FORMAT_MARK, Account, SliceEnd, end_as_values
from duesweep.core.address import TableName, quote_name
from duesweep.core.errors import (
    ConfigError,
    MissingRightError,
    Problem,
    RefusedMessageError,
    StoreError,
)
from duesweep.core.finding import (
    Check,
    Finding,
    Severity,
    fault,
    ok,
    skipped,
    stop,
    warning,
)
from duesweep.core.headers import write_json
from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID
from duesweep.drivers.postgresql.catalog import (
    column_lists,
    find_table,
    find_tables,
    hidden_rows,
    similar_tables,
)
from duesweep.drivers.postgresql.session import (
    PostgreSqlSession,
    text_of,
)
from duesweep.drivers.postgresql.start import SEARCH_PATH, WIDE_ENCODINGS, literal
from duesweep.drivers.postgresql.wire import UuidArray
from duesweep.drivers.statements import Columns, FoundTable, Session
from duesweep.stores.dialect import Location, Tables, WantedIndex, journal_tables
from duesweep.stores.kinds import TableKind
from duesweep.stores.tables import (
    WantedTable,
    dropping,
    refusing,
)
from duesweep.stores.zone import agree, writer_time_zone

# gen_random_uuid() came with this one.
_OLDEST_VERSION = 130_000
_WARN_AT, _FAULT_AT = 0.5, 0.9
# The sources of settings that a session, or its connection string, sets for itself.
_OWN_SOURCES = {"session", "client"}
_OVERRIDE = "set store.writer_time_zone to the time zone of the sessions that store messages"
# The end of a slice of no sweep.
_NO_SLICE = {"sweep_id": UUID(int=0), "slice": 0, **end_as_values(SliceEnd(Account(), None))}
_POOLERS = {
    False: "No pooler is before the server",
    True: "The pooler before the server keeps a server process for each session",
}
# Identifiers are cut after this many bytes, which would give an index its table's name.
_NAME_BYTES = 63
# Of any day, for an example.
_NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)


def _columns(
    session: PostgreSqlSession, tables: Iterable[TableName]
) -> Mapping[TableName, Collection[str]]:
    found = find_tables(session, dict.fromkeys(tables, ()))
    return {table: one.columns for table, one in found.items()}


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
        "every search for due messages reads the whole table",
        f"CREATE INDEX CONCURRENTLY ON {delayed} ({kind.names['due']})",
    )


def _creation(name: str, /, **tables: TableName) -> str:
    index = {"index": _index_name(tables["delayed"])} if "delayed" in tables else {}
    text = text_of(name, {**tables, **index})
    return text + _mark(tables["journal"]) if "journal" in tables else text


def _script(dsn: str, creations: Iterable[Sequence[str]]) -> str:  # noqa: ARG001 - it names no database
    """The server's notices on existing tables are left out. An administrator runs them, so no
    function may be another one than the server's own.
    """
    texts = filter(None, map("".join, creations))
    settings = [f"SET search_path = {SEARCH_PATH};", "SET client_min_messages = warning;"]
    return "\n".join([*settings, *texts])


def _create(
    session: Session,
    new: Sequence[TableName],
    scripts: Sequence[tuple[Sequence[TableName], Sequence[str]]],
    named_by: str,
) -> None:
    """Refuses before it creates anything. Takes the advisory locks that the transport itself takes
    to create or alter these tables.
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
                advice="have their owner run `duesweep setup`, or an administrator the output of "
                "`duesweep setup --print-sql`",
            ) from error


def _creation_lock(qualified_name: str) -> int:
    """As the transport's `QueueCreator.CalculateLockId`."""
    digest = hashlib.sha256(qualified_name.encode("utf-16-le")).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


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
    """The statement that marks the tables with their format. Another version's mark stays."""
    has_none = f"obj_description({literal(str(journal))}::regclass, 'pg_class') IS NULL"
    note = f"COMMENT ON TABLE {journal} IS {literal(FORMAT_MARK)}"
    return f"DO {literal(f'BEGIN IF {has_none} THEN {note}; END IF; END')};\n"


def _index_name(delayed: TableName) -> str:
    """`<table>_Due` as the transport calls it, shortened where PostgreSQL would cut the end off."""
    suffix = "_Due"
    name = delayed.table.encode()[: _NAME_BYTES - len(suffix)].decode(errors="ignore")
    return quote_name(name + suffix)


def check_session(
    session: PostgreSqlSession, setting: str, location: Location | None = None
) -> Iterator[Finding]:
    """Whether a database takes writes, its text has an encoding, and it knows the time zone of
    `location`; `setting` names the database.
    """
    about = session.row("describe_session")
    yield _version(setting, about)
    yield writable(setting, about)
    yield _durability(setting, about)
    sslmode = session.tls.get("sslmode", "prefer")
    yield certificate(setting, sslmode, is_encrypted=session.is_encrypted)
    yield _encoding(setting, about)
    yield ok(Check.POOLER, setting, _POOLERS[session.start.is_pooled])
    zone = None if location is None else location.writer_time_zone
    if zone is not None and _is_unknown(session, zone):
        refusal = Problem(
            f"store.writer_time_zone is {zone!r}, which PostgreSQL does not know",
            "give a name out of pg_timezone_names",
        )
        yield stop(Check.WRITER_TIME_ZONE, setting, refusal)


def _is_unknown(session: Session, zone: str) -> bool:
    """Whether the server refuses a time zone."""
    try:
        with session.transaction():
            session.row("set_zone", zone=zone)
    except StoreError as error:
        if error.transient:
            raise
        return True
    return False


# A trigger may check what NServiceBus writes.
_HEADERS = write_json(
    {
        MESSAGE_ID: str(UUID(int=0)),
        "NServiceBus.MessageIntent": "Send",
        "NServiceBus.ContentType": "application/json",
        ENCLOSED_MESSAGE_TYPES: "duesweep.Trial",
    }
)


def try_hooks(
    session: PostgreSqlSession, location: Location | None, wanted: WantedTable, found: FoundTable
) -> Sequence[Finding]:
    """Whether a trigger or a rule drops rows that a sweep adds or removes, or refuses it: only a
    trial shows that. It is rolled back.
    """
    if found.missing_rights:
        return []
    session.begin()
    try:
        # A trigger that waits for the end of a transaction would never run in one that is undone.
        session.script("SET CONSTRAINTS ALL IMMEDIATE")
        return _try_hooks(session, location, wanted, found)
    except (RefusedMessageError, StoreError) as error:
        if isinstance(error, StoreError) and error.transient:
            raise
        return [refusing(wanted, found, error.text)]
    finally:
        session.rollback()


def _try_hooks(
    session: PostgreSqlSession, location: Location | None, wanted: WantedTable, found: FoundTable
) -> Sequence[Finding]:
    if location is None or wanted.key is None:
        session.insert_messages(wanted.table, [(_HEADERS, b"{}")])
        return []
    statements = session.named(location.names(location.delayed))
    if wanted.table == journal_tables(location.delayed)["journal"]:
        # A batch counts the row that it adds, and `open_sweep` its own.
        is_taken = statements.execute("journal_slice", **_NO_SLICE)
        return [] if is_taken else [dropping(wanted, found, "does not take a row")]
    if wanted.is_journal:
        return []
    keys = [row.id for row in statements.rows("lock_any")]
    if not keys:
        reason = f"It has {' and '.join(found.hooks)}, and no message to try it with"
        return [skipped(Check.TABLE_TRIGGERS, wanted.name, reason)]
    is_removed = statements.execute("remove", keys=UuidArray.of(keys))
    return [] if is_removed else [dropping(wanted, found, "keeps a message that is removed")]


def more_findings(
    session: PostgreSqlSession, setting: str, store: Location | None, queue_columns: Columns
) -> Iterator[Finding]:
    """What only the doctor asks."""
    yield time_outs(setting, session.rows("doctor_time_outs"))
    if store is not None:
        yield from _zones(session, setting, store)
    yield from headroom(setting, session.rows("doctor_sequences", **column_lists(queue_columns)))


def _version(setting: str, server: Any) -> Finding:
    if server.version_number >= _OLDEST_VERSION:
        return ok(Check.SERVER_VERSION, setting, f"PostgreSQL {server.version}")
    return fault(
        Check.SERVER_VERSION,
        setting,
        f"PostgreSQL {server.version} is too old for the statements of a sweep",
        "Upgrade to PostgreSQL 13 or newer",
    )


def writable(setting: str, session: Any) -> Finding:
    """Whether a session, as `describe_session` says, may write."""
    if not session.is_read_only:
        return ok(Check.SERVER_WRITABLE, setting, "Sessions can write")
    refusal = Problem(
        f"The session that {setting} opens is read-only",
        "connect to the primary server, with a role that may write",
    )
    why = "This is a replica" if session.is_replica else None
    return stop(Check.SERVER_WRITABLE, setting, refusal, found=why)


def _durability(setting: str, server: Any) -> Finding:
    check = Check.DURABILITY
    if server.is_synced:
        text = "Commits of duesweep's sessions are on the server's disk"
        return ok(check, setting, text)
    return warning(
        check,
        setting,
        "fsync is off: a crash of the server's machine loses or damages messages that were "
        "reported as delivered",
        "Set fsync = on in the server's configuration, and reload it",
    )


def _encoding(setting: str, session: Any) -> Finding:
    if session.encoding.startswith(WIDE_ENCODINGS):
        return warning(
            Check.TEXT_ENCODING,
            setting,
            f"Text is {session.encoding}: headers with a character that has no equivalent in UTF-8 "
            "would stop all messages",
            "Move the endpoint to a database encoded in UTF8",
        )
    if session.encoding != "SQL_ASCII":
        return ok(Check.TEXT_ENCODING, setting, f"Text is {session.encoding}")
    refusal = Problem(
        f"The database that {setting} names is encoded in SQL_ASCII, so its headers may be no text "
        "at all",
        "move the endpoint to a database encoded in UTF8",
    )
    return stop(Check.TEXT_ENCODING, setting, refusal)


def certificate(setting: str, sslmode: str, *, is_encrypted: bool) -> Finding:
    """Whether a session that works by `sslmode` checks the server."""
    check = Check.SERVER_CERTIFICATE
    unchecked = {"require": "certificate", "verify-ca": "name in the server's certificate"}
    if not is_encrypted and sslmode in {*unchecked, "verify-full"}:
        text = f"The session uses a Unix socket, without TLS (sslmode {sslmode})"
        return ok(check, setting, text)
    if sslmode in unchecked:
        return warning(
            check,
            setting,
            f"The session is encrypted, but the {unchecked[sslmode]} is not checked "
            f"(sslmode {sslmode}): another server could take this one's place, and be sent "
            "messages and the password",
            f"Set sslmode=verify-full in {setting}, and sslrootcert to the file of its "
            "authority, or to system for the machine's authorities",
        )
    if sslmode == "verify-full":
        return ok(check, setting, "The server's certificate and its name are checked")
    state = "is encrypted, but nothing is checked" if is_encrypted else "is not encrypted"
    text = f"TLS is not required (sslmode {sslmode}); this session {state}"
    return ok(check, setting, text)


def time_outs(setting: str, rows: Sequence[Any]) -> Finding:
    """Which time-outs are set for the role, and whether they apply to duesweep's sessions. A row
    has a time-out of this session in milliseconds (0 for none), its source, as pg_settings calls
    it, and its value for a session that sets none, and for whom that was set.
    """
    check = Check.SESSION_TIME_OUTS
    kept = [row for row in rows if row.milliseconds and row.source not in _OWN_SOURCES]
    if kept:
        found = ", ".join(f"{row.name} {row.milliseconds:,} ms" for row in kept)
        return warning(
            check,
            setting,
            f"duesweep sets its own time-outs, but its session has {found} from elsewhere: the "
            "server may end the session in the middle of a sweep",
            f"Set {setting} to the server itself, or to a pool in session mode; or set these "
            "time-outs to 0 for this role (ALTER ROLE … SET …)",
        )
    told = [row for row in rows if row.default_milliseconds]
    text = "Neither this role, nor its database, nor the server sets a time-out"
    if told:
        found = ", ".join(
            f"{row.name} {row.default_milliseconds:,} ms (for {row.origin})" for row in told
        )
        text = f"{found}; duesweep's sessions set their own, so these do no harm"
    return ok(check, setting, text)


def _zones(connection: PostgreSqlSession, setting: str, store: Location) -> Iterator[Finding]:
    # Only if the time zone of the writers' sessions decides the meaning of a Due.
    if store.kind.time_zone is not None or find_table(connection, store.delayed) is None:
        return
    at_start, source = connection.zone_at_start()
    text = f"This role's sessions are in {at_start} (from: {source}), duesweep's in UTC"
    yield ok(Check.SERVER_TIME_ZONE, setting, text)
    writers, problem = None, None
    try:
        writers = writer_time_zone(connection, store.dsn, store.delayed)
    except ConfigError as error:
        problem = str(error)
    override = store.writer_time_zone
    if (zone := override or writers) is None:
        how = f"Give the roles that write one zone (ALTER ROLE … SET TimeZone), or {_OVERRIDE}"
        yield fault(Check.WRITER_TIME_ZONE, setting, str(problem), how)
    elif not _is_unknown(connection, zone):
        if override and writers and agree(connection, {override, writers}):
            # Another name of the same clock.
            writers = override
        row = connection.row("doctor_zone", zone=zone)
        yield writer_zone(setting, zone, writers, (row.least, row.most))


def writer_zone(setting: str, zone: str, writers: str | None, minutes: tuple[int, int]) -> Finding:
    """The meaning of the zone that is used for a stored Due. `writers`: the zone of the roles that
    write to the delayed table, None if that is not known. `minutes`: the least and the most that
    `zone` is ahead of UTC within a year.
    """
    if writers not in {None, zone}:
        return warning(
            Check.WRITER_TIME_ZONE,
            setting,
            f"store.writer_time_zone is {zone}, but the writers' settings say "
            f"{writers}: if these are right, messages leave early or late by the difference",
            "Leave store.writer_time_zone out, unless the endpoints' connection strings set a zone",
        )
    return _zone_meaning(setting, zone, minutes)


def _zone_meaning(setting: str, zone: str, minutes: tuple[int, int]) -> Finding:
    least, most = minutes
    if least == most == 0:
        text = f"Writers use {zone}, so stored due times are exact"
        return ok(Check.WRITER_TIME_ZONE, setting, text)
    off = f"{abs(least)} min" if least == most else f"{abs(least)} or {abs(most)} min"
    read = (_NOON - timedelta(minutes=least)).strftime("%H:%M")
    text = (
        f"Writers use {zone}, so they store UTC's clock time as if it were theirs, {off} from the "
        f"instant: a Due of 12:00 UTC is stored as 12:00 there, and that may be {read} UTC. The "
        "sweep corrects this, as NServiceBus does"
    )
    if least == most:
        return ok(Check.WRITER_TIME_ZONE, setting, text)
    return warning(
        Check.WRITER_TIME_ZONE,
        setting,
        f"{text}. Across a change of their clocks, messages are early or late by "
        f"{most - least} min, by NServiceBus too",
        "Wait until no message waits; then give the roles that write UTC (ALTER ROLE … SET "
        "TimeZone = 'UTC') and restart the endpoints. A message that still waits would leave at "
        f"{read} UTC and not at 12:00",
    )


def headroom(setting: str, sequences: Sequence[Any]) -> Iterator[Finding]:
    """How many numbers are left to `seq` of each queue table."""
    seen = [row for row in sequences if not row.is_hidden]
    tight = [row for row in seen if _used(row) >= _WARN_AT]
    yield from map(_tight, tight)
    if hidden := len(sequences) - len(seen):
        text = f"The sequences of {hidden} queue tables are not readable for this role"
        yield skipped(Check.SEQ_HEADROOM, setting, text)
    if seen and not tight:
        most = max(seen, key=_used)
        text = f"Of {len(seen)} queue tables, {_table_of(most)} has used most: {_used(most):.1%}"
        yield ok(Check.SEQ_HEADROOM, setting, text)


def _used(row: Any) -> float:
    """The share of the numbers that is used up, from 0 to 1. A new sequence has no last one."""
    return (row.last or 0) / int(row.most)


def _table_of(row: Any) -> str:
    return str(TableName(row.schema, row.table))


def _tight(row: Any) -> Finding:
    left = row.most - (row.last or 0)
    widen = f"ALTER TABLE {_table_of(row)} ALTER COLUMN seq TYPE bigint"
    raise_limit = f"ALTER SEQUENCE {row.sequence} AS bigint MAXVALUE {2**63 - 1}"
    return Finding(
        Check.SEQ_HEADROOM,
        Severity.FAULT if _used(row) >= _FAULT_AT else Severity.WARNING,
        _table_of(row),
        f"Its seq is {row.column_type} and at {row.last:,}: {left:,} numbers are left "
        f"({_used(row):.0%} used), then it accepts no more messages",
        f"{widen}; {raise_limit}; the first rewrites the table, so do it while the queue is short",
        [
            f"-- Only while the queue is short, because this rewrites the table:\n{widen}",
            raise_limit,
        ],
    )


class PostgreSqlTables(Tables):
    """PostgreSQL's: the index on Due comes with the table."""

    body_string = "bodystring"
    check_session = staticmethod(check_session)
    more_findings = staticmethod(more_findings)
    find = staticmethod(find_tables)
    with_indexes = staticmethod(_with_indexes)
    columns = staticmethod(_columns)
    estimate_rows = staticmethod(_estimate_rows)
    similar = staticmethod(similar_tables)
    hidden_rows = staticmethod(hidden_rows)
    try_hooks = staticmethod(try_hooks)
    creation = staticmethod(_creation)
    script = staticmethod(_script)
    create = staticmethod(_create)
    grants = staticmethod(_grants)
    due_index = staticmethod(_due_index)


POSTGRESQL_TABLES = PostgreSqlTables()
