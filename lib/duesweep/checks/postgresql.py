"""Findings on a PostgreSQL server, its sessions' time zones and its queues' sequences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from duesweep.checks.certificate import certificate
from duesweep.checks.finding import Check, Finding, Severity, fault, ok, skipped, warning
from duesweep.checks.server import ClockReading, clock_skew, reachable
from duesweep.checks.table_findings import TableFacts, all_table_findings
from duesweep.checks.time_outs import TimeOut, time_out_findings
from duesweep.core.address import quote_name

# gen_random_uuid() came with this one.
_OLDEST_VERSION = 130_000
_MAXIMA = {"smallint": 2**15 - 1, "integer": 2**31 - 1, "bigint": 2**63 - 1}
_WARN_AT, _FAULT_AT = 0.5, 0.9
_OVERRIDE = "set store.writer_time_zone to the time zone of the sessions that store messages"


@dataclass(frozen=True, slots=True)
class ZoneFacts:
    """`server` is the zone of this role's sessions, and `source` where it comes from. `writers` is
    the zone of the roles that write to the delayed table; if it is not known, `problem` says why.
    `override` is store.writer_time_zone. `minutes`: the least and the most that the zone in use is
    ahead of UTC within a year; None if the server does not know that zone.
    """

    server: str
    source: str
    writers: str | None
    problem: str | None
    override: str | None
    minutes: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class SequenceFacts:
    """The sequence behind `seq` of a queue table. `last` is None if it is new, or if this role may
    not read it (`is_hidden`).
    """

    table: str
    column_type: str
    sequence: str
    last: int | None
    most: int
    may_use: bool
    is_hidden: bool = False

    @property
    def limit(self) -> int:
        """The highest number that both the sequence and the column can hold."""
        return min(self.most, _MAXIMA.get(self.column_type, self.most))

    @property
    def used(self) -> float:
        """The share of the numbers that is used up, from 0 to 1."""
        return (self.last or 0) / self.limit


@dataclass(frozen=True, slots=True)
class PostgreSqlFacts:
    """What a session found. `backends` are the server processes that answered its statements.
    `zones` is None if no messages wait in this database. `sslmode` is what the session works by.
    """

    setting: str
    role: str
    version: str
    version_number: int
    encoding: str
    is_read_only: bool
    is_replica: bool
    readings: Sequence[ClockReading]
    backends: frozenset[int]
    tables: Sequence[TableFacts]
    sequences: Sequence[SequenceFacts]
    zones: ZoneFacts | None = None
    time_outs: Sequence[TimeOut] = ()
    sslmode: str = "prefer"
    is_encrypted: bool = False


def postgresql_findings(facts: PostgreSqlFacts) -> Iterator[Finding]:
    """Findings on one database."""
    yield reachable(facts.setting, f"PostgreSQL {facts.version}", facts.readings)
    yield _version(facts)
    yield _writable(facts)
    yield certificate(facts.setting, facts.sslmode, is_encrypted=facts.is_encrypted)
    yield _encoding(facts)
    yield clock_skew(facts.setting, facts.readings)
    yield _pooler(facts)
    yield from time_out_findings(facts.setting, facts.time_outs)
    tables = [_with_sequences(table, facts) for table in facts.tables]
    yield from all_table_findings(facts.setting, tables)
    if facts.zones is not None:
        yield _server_zone(facts.setting, facts.zones)
        yield _writer_zone(facts.setting, facts.zones)
    yield from _headroom(facts.setting, facts.sequences)


def _version(facts: PostgreSqlFacts) -> Finding:
    if facts.version_number >= _OLDEST_VERSION:
        return ok(Check.SERVER_VERSION, facts.setting, f"PostgreSQL {facts.version}")
    return fault(
        Check.SERVER_VERSION,
        facts.setting,
        f"PostgreSQL {facts.version} is too old for the statements of a sweep",
        "Upgrade to PostgreSQL 13 or newer",
    )


def _writable(facts: PostgreSqlFacts) -> Finding:
    if not facts.is_read_only:
        return ok(Check.SERVER_WRITABLE, facts.setting, "The session may write")
    why = "This is a replica" if facts.is_replica else "The session is read-only"
    return fault(
        Check.SERVER_WRITABLE,
        facts.setting,
        why,
        f"Set {facts.setting} to the primary server, and to a role whose "
        "default_transaction_read_only is off",
    )


def _encoding(facts: PostgreSqlFacts) -> Finding:
    if facts.encoding != "SQL_ASCII":
        return ok(Check.TEXT_ENCODING, facts.setting, f"Text is {facts.encoding}")
    return fault(
        Check.TEXT_ENCODING,
        facts.setting,
        "The database is encoded in SQL_ASCII: its headers may not be text",
        "Move the endpoint to a database encoded in UTF8",
    )


def _pooler(facts: PostgreSqlFacts) -> Finding:
    if len(facts.backends) == 1:
        text = "One session keeps one server process"
        return ok(Check.POOLER, facts.setting, text)
    return fault(
        Check.POOLER,
        facts.setting,
        f"{len(facts.backends)} server processes answered the statements of one session: a pooler "
        "assigns them by transaction, so the advisory locks that show which sweep lives are lost",
        f"Set {facts.setting} to the server itself, or to a pool in session mode",
    )


def _server_zone(setting: str, zones: ZoneFacts) -> Finding:
    text = f"This role's sessions are in {zones.server} (from: {zones.source}), duesweep's in UTC"
    return ok(Check.SERVER_TIME_ZONE, setting, text)


def _writer_zone(setting: str, zones: ZoneFacts) -> Finding:
    check, zone = Check.WRITER_TIME_ZONE, zones.override or zones.writers
    if zone is None:
        how = f"Give the roles that write one zone (ALTER ROLE … SET TimeZone), or {_OVERRIDE}"
        return fault(check, setting, str(zones.problem), how)
    if zones.minutes is None:
        text = f"PostgreSQL does not know the time zone {zone}"
        return fault(check, setting, text, "Give a name out of pg_timezone_names")
    if zones.override and zones.writers and zones.writers != zones.override:
        return warning(
            check,
            setting,
            f"store.writer_time_zone is {zones.override}, but the settings of those who write say "
            f"{zones.writers}: if these are right, messages leave early or late by the difference",
            "Leave store.writer_time_zone out, unless the endpoints' connection strings set a zone",
        )
    return _zone_meaning(setting, zone, zones.minutes)


def _zone_meaning(setting: str, zone: str, minutes: tuple[int, int]) -> Finding:
    least, most = minutes
    if least == most == 0:
        text = f"Those who write are in {zone}: a stored Due is the instant itself"
        return ok(Check.WRITER_TIME_ZONE, setting, text)
    meaning = (
        f"Those who write are in {zone}, and a stored Due is UTC's clock read as theirs, {{}} from "
        "the instant; the sweep, like NServiceBus, reckons with it"
    )
    if least == most:
        text = meaning.format(f"{abs(least)} min")
        return ok(Check.WRITER_TIME_ZONE, setting, text)
    text = meaning.format(f"{abs(least)} or {abs(most)} min")
    return warning(
        Check.WRITER_TIME_ZONE,
        setting,
        f"{text}. Across a change of their clocks, messages are early or late by "
        f"{most - least} min, by NServiceBus too",
        "While no message waits, give the roles that write UTC (ALTER ROLE … SET TimeZone = "
        "'UTC') and restart the endpoints. Not while messages wait: theirs would mean other "
        "instants",
    )


def _with_sequences(table: TableFacts, facts: PostgreSqlFacts) -> TableFacts:
    """With the sequences that this role may not use: an INSERT needs them, too."""
    if table.found is None:
        return table
    grants = {
        f"USAGE on its sequence {sequence.sequence}": (
            f"GRANT USAGE ON SEQUENCE {sequence.sequence} TO {quote_name(facts.role)}"
        )
        for sequence in facts.sequences
        if sequence.table == table.wanted.name and not sequence.may_use
    }
    return replace(table, found=replace(table.found, missing_grants=grants))


def _headroom(setting: str, sequences: Sequence[SequenceFacts]) -> Iterator[Finding]:
    seen = [sequence for sequence in sequences if not sequence.is_hidden]
    tight = [sequence for sequence in seen if sequence.used >= _WARN_AT]
    yield from map(_tight, tight)
    if hidden := len(sequences) - len(seen):
        text = f"The sequences of {hidden} queue tables are closed to this role"
        yield skipped(Check.SEQ_HEADROOM, setting, text)
    if seen and not tight:
        most = max(seen, key=lambda sequence: sequence.used)
        text = f"Of {len(seen)} queue tables, {most.table} has used most: {most.used:.1%}"
        yield ok(Check.SEQ_HEADROOM, setting, text)


def _tight(sequence: SequenceFacts) -> Finding:
    left = sequence.limit - (sequence.last or 0)
    widen = f"ALTER TABLE {sequence.table} ALTER COLUMN seq TYPE bigint"
    raise_limit = f"ALTER SEQUENCE {sequence.sequence} AS bigint MAXVALUE {_MAXIMA['bigint']}"
    return Finding(
        Check.SEQ_HEADROOM,
        Severity.FAULT if sequence.used >= _FAULT_AT else Severity.WARNING,
        sequence.table,
        f"Its seq is {sequence.column_type} and at {sequence.last:,}: {left:,} numbers are left "
        f"({sequence.used:.0%} used), then it takes no message any more",
        f"{widen}; {raise_limit}; the first rewrites the table, so do it while the queue is short",
        [
            f"-- Only while the queue is short, because this rewrites the table:\n{widen}",
            raise_limit,
        ],
    )
