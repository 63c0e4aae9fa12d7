"""Findings on a SQL Server: what it can do, and how its readers and writers wait."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from duesweep.checks.finding import Check, Finding, capitalized, fault, ok, skipped, warning
from duesweep.checks.server import ClockReading, clock_skew, reachable
from duesweep.checks.table_findings import TableFacts, all_table_findings
from duesweep.core.address import bracket_name
from duesweep.core.policy import MAX_BATCH_ROWS, SCANNED_ROWS


@dataclass(frozen=True, slots=True)
class SqlServerFacts:
    """What a session found. `json_problem` is the server's error for a statement that reads JSON.
    `lock_escalation` is the delayed table's, None if this user cannot see it. `ambiguous` says
    which two delayed tables exist. `holds_messages`: messages wait in this database.
    """

    setting: str
    version: str
    database: str
    compatibility_level: int
    updateability: str
    is_read_committed_snapshot: bool
    snapshot_isolation: str
    minutes_ahead: int
    json_problem: str | None
    readings: Sequence[ClockReading]
    tables: Sequence[TableFacts]
    lock_escalation: str | None = None
    ambiguous: str | None = None
    holds_messages: bool = True


def sqlserver_findings(facts: SqlServerFacts) -> Iterator[Finding]:
    """Findings on one database."""
    yield reachable(facts.setting, f"SQL Server {facts.version}", facts.readings)
    yield _version(facts)
    yield _writable(facts)
    yield clock_skew(facts.setting, facts.readings)
    yield _zone(facts)
    yield _read_committed_snapshot(facts)
    yield _snapshot_isolation(facts)
    if facts.holds_messages:
        yield _one_delayed_table(facts)
        yield _lock_escalation(facts)
    yield from all_table_findings(facts.setting, facts.tables)


def _version(facts: SqlServerFacts) -> Finding:
    what = f"SQL Server {facts.version}, compatibility level {facts.compatibility_level}"
    if facts.json_problem is None:
        return ok(Check.SERVER_VERSION, facts.setting, f"{what}: reads and joins lists")
    return fault(
        Check.SERVER_VERSION,
        facts.setting,
        f"{what}, has no OPENJSON or no STRING_AGG: {facts.json_problem}",
        "That takes SQL Server 2017 or newer, and ALTER DATABASE "
        f"{bracket_name(facts.database)} SET COMPATIBILITY_LEVEL = 130 or more",
    )


def _writable(facts: SqlServerFacts) -> Finding:
    if facts.updateability != "READ_ONLY":
        return ok(Check.SERVER_WRITABLE, facts.setting, "The database takes writes")
    return fault(
        Check.SERVER_WRITABLE,
        facts.setting,
        "The database is read-only",
        f"Set {facts.setting} to the primary replica, without ApplicationIntent=ReadOnly",
    )


def _zone(facts: SqlServerFacts) -> Finding:
    text = (
        f"The server's own clock is {facts.minutes_ahead} min ahead of UTC, which does not matter: "
        "Due is UTC, and is compared to UTC"
    )
    return ok(Check.SERVER_TIME_ZONE, facts.setting, text)


def _read_committed_snapshot(facts: SqlServerFacts) -> Finding:
    check = Check.READ_COMMITTED_SNAPSHOT
    if facts.is_read_committed_snapshot:
        return ok(check, facts.setting, "Readers see what is committed, and do not wait")
    when = "while nobody else is connected"
    statement = (
        f"ALTER DATABASE {bracket_name(facts.database)} SET READ_COMMITTED_SNAPSHOT ON WITH "
        "ROLLBACK AFTER 10 SECONDS"
    )
    return warning(
        check,
        facts.setting,
        "READ_COMMITTED_SNAPSHOT is off: other readers wait for the rows that a batch locks, and "
        "batches wait for theirs. Sweeps work either way, because a claim skips locked rows; "
        "plans, counts and other queries wait",
        f"{capitalized(when)}: {statement}; or accept it with --ignore {check}",
        statements=[f"-- Only {when}:\n{statement}"],
    )


def _snapshot_isolation(facts: SqlServerFacts) -> Finding:
    text = (
        f"ALLOW_SNAPSHOT_ISOLATION is {facts.snapshot_isolation}; sweeps need none, and set READ "
        "COMMITTED themselves"
    )
    return ok(Check.SNAPSHOT_ISOLATION, facts.setting, text)


def _one_delayed_table(facts: SqlServerFacts) -> Finding:
    check = Check.ONE_DELAYED_TABLE
    if facts.ambiguous is None:
        return ok(check, facts.setting, "One table can be the delayed one")
    return fault(
        check,
        facts.setting,
        facts.ambiguous,
        "Find out which of them the endpoint writes to, and set store.delayed_table to it; if the "
        "other holds messages, sweep it once with a configuration of its own",
    )


def _lock_escalation(facts: SqlServerFacts) -> Finding:
    check = Check.LOCK_ESCALATION
    if facts.lock_escalation is None:
        return skipped(check, facts.setting, "This user cannot see the delayed table")
    text = (
        f"The delayed table's is {facts.lock_escalation}; batches of up to {MAX_BATCH_ROWS:,} rows "
        f"look at {SCANNED_ROWS:,}, below the 5,000 locks at which a server locks the table"
    )
    return ok(check, facts.setting, text)
