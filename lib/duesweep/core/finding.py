"""Findings: the result of a check for one thing. The doctor shows all; a sweep is refused by the
first that stops it.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from duesweep.core.errors import (
    ConfigError,
    DuesweepError,
    OdbcDriverError,
    PoolerError,
    Problem,
    capitalized,
)
from duesweep.core.world import World

NOT_SET_UP = "The command `setup` has not run"
# What findings on Spark are about.
SESSION = "the Spark session"
_READINGS = 3
# How many tables a notice names.
_SHOWN = 3
# No message is early or late by this machine's clock: it is only for logs and fault headers.
_SKEW = timedelta(seconds=5)


class Severity(StrEnum):
    """How bad a finding is, worst first. Faults and warnings must be corrected."""

    FAULT = "fault"
    WARNING = "warning"
    SKIPPED = "skipped"
    IGNORED = "ignored"
    OK = "ok"


class Check(StrEnum):
    """The checks' names; stable, for scripts. docs/doctor.md has their meanings."""

    DRIVER_IMPORT = "driver-import"
    ROUTE = "route"
    SERVER_REACHABLE = "server-reachable"
    SERVER_VERSION = "server-version"
    SERVER_WRITABLE = "server-writable"
    SERVER_CERTIFICATE = "server-certificate"
    DURABILITY = "durability"
    TEXT_ENCODING = "text-encoding"
    CLOCK_SKEW = "clock-skew"
    POOLER = "pooler"
    SESSION_TIME_OUTS = "session-time-outs"
    SERVER_TIME_ZONE = "server-time-zone"
    WRITER_TIME_ZONE = "writer-time-zone"
    READ_COMMITTED_SNAPSHOT = "read-committed-snapshot"
    SETUP = "setup"
    ONE_DELAYED_TABLE = "one-delayed-table"
    TABLE_EXISTS = "table-exists"
    TABLE_SHAPE = "table-shape"
    TABLE_INDEX = "table-index"
    TABLE_RIGHTS = "table-rights"
    ROW_SECURITY = "row-security"
    REPLICA_IDENTITY = "replica-identity"
    TABLE_TRIGGERS = "table-triggers"
    HEADERS_UNICODE = "headers-unicode"
    SEQ_HEADROOM = "seq-headroom"
    FEATURE_FLAGS = "feature-flags"
    BROKER_ALARMS = "broker-alarms"
    MANAGEMENT_API = "management-api"
    LADDER_EXCHANGE = "ladder-exchange"
    LADDER_QUEUE = "ladder-queue"
    LADDER_POLICY = "ladder-policy"
    LADDER_BINDING = "ladder-binding"
    LADDER_WAITING = "ladder-waiting"
    DELIVERY_BINDING = "delivery-binding"
    FIRST_LADDER = "first-ladder"
    STORE_NOTICES = "store-notices"
    SWEEP_START = "sweep-start"
    SPARK_START = "spark-start"
    SPARK_JDBC = "spark-jdbc"
    SPARK_SPECULATION = "spark-speculation"
    SPARK_TASK_RETRIES = "spark-task-retries"
    SPARK_TIME_ZONE = "spark-time-zone"
    JVM_TIME_ZONE = "jvm-time-zone"
    EXECUTOR_DRIVERS = "executor-drivers"
    EXECUTOR_VERSIONS = "executor-versions"
    LEDGER = "ledger"


@dataclass(frozen=True, slots=True)
class Finding:
    """`about` is a setting, a table or a host; `advice` says what to do, None if nothing.
    `statements` are the SQL statements that do it, if statements can, and `setting` names their
    database. `refusal`: why a sweep does not start that finds this; None: it starts. `only_reads`:
    the rights on a table that this user has or lacks are a reader's.
    """

    check: Check
    severity: Severity
    about: str
    found: str
    advice: str | None = None
    statements: Sequence[str] = ()
    setting: str | None = None
    refusal: Problem | None = field(default=None, repr=False)
    only_reads: bool = field(default=False, repr=False)


def ok(check: Check, about: str, found: str) -> Finding:
    """A check that found nothing wrong."""
    return Finding(check, Severity.OK, about, found)


def warning(
    check: Check, about: str, found: str, advice: str, *, statements: Sequence[str] = ()
) -> Finding:
    """Sweeps work, but they are slow, restricted or at risk."""
    return Finding(check, Severity.WARNING, about, found, advice, statements)


def fault(check: Check, about: str, found: str, advice: str) -> Finding:
    """Sweeps, or some of their messages, fail."""
    return Finding(check, Severity.FAULT, about, found, advice)


def fault_of(
    check: Check, about: str, problem: Problem, otherwise: str = "Correct the named setting"
) -> Finding:
    """The fault that an error or a notice reports; `otherwise` is the advice if it has none."""
    return fault(check, about, problem.text, capitalized(problem.advice or otherwise))


def stop(check: Check, about: str, refusal: Problem, *, found: str | None = None) -> Finding:
    """The fault that stops a sweep; `found` if the doctor says more than the refusal."""
    advice = capitalized(refusal.advice or "correct the named setting")
    return Finding(
        check, Severity.FAULT, about, found or refusal.text, advice=advice, refusal=refusal
    )


def refuse(findings: Iterable[Finding]) -> None:
    """Raise `ConfigError` for the first finding that stops a sweep; the checks after it are not
    made.
    """
    for finding in findings:
        if finding.refusal is not None:
            raise ConfigError.of([finding.refusal])


def skipped(check: Check, about: str, reason: str) -> Finding:
    """A check that was not made."""
    return Finding(check, Severity.SKIPPED, about, reason)


def is_to_mend(finding: Finding) -> bool:
    """Whether a person must act."""
    return finding.severity in {Severity.FAULT, Severity.WARNING}


def notices(findings: Iterable[Finding]) -> Iterator[Problem]:
    """The findings that are to be mended, as a sweep says them that starts nevertheless: one for
    all tables with the same.
    """
    tables: dict[str, list[str]] = {}
    advice: dict[str, str] = {}
    for each in filter(is_to_mend, findings):
        tables.setdefault(each.found, []).append(each.about)
        advice.setdefault(each.found, f"run {each.advice}")
    for found, names in tables.items():
        more = len(names) - _SHOWN
        shown = ", ".join(names[:_SHOWN]) + (f" and {more} more tables" if more > 0 else "")
        yield Problem(f"{shown}: {found}", advice[found])


def for_readers(findings: Sequence[Finding]) -> Sequence[Finding]:
    """The findings without missing rights to write, if this user may write to no table: a sweep has
    another one.
    """
    rights = [each for each in findings if each.check is Check.TABLE_RIGHTS]
    if not all(each.only_reads for each in rights):
        return findings
    return [each for each in findings if each.check is not Check.TABLE_RIGHTS]


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Faults, warnings, then the rest; each in the order of the checks."""
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def without(findings: Iterable[Finding], ignored: Sequence[str]) -> list[Finding]:
    """The findings; findings of `ignored` checks are marked.

    Raises `ConfigError` for an unknown name of a check.
    """
    for name in ignored:
        if name not in set(Check):
            near = difflib.get_close_matches(name, list(Check), n=1)
            hint = f"did you mean {near[0]}?" if near else f"give one of {', '.join(Check)}"
            raise ConfigError(f"There is no check {name}", advice=hint)
    return [
        replace(finding, severity=Severity.IGNORED)
        if finding.check in ignored and is_to_mend(finding)
        else finding
        for finding in findings
    ]


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The server's clock, and this machine's before and after the question. All have a zone."""

    server: datetime
    before: datetime
    after: datetime

    @property
    def round_trip(self) -> timedelta:
        return self.after - self.before

    @property
    def skew(self) -> timedelta:
        """How far the server is ahead, if it answered in the middle of the round trip."""
        return self.server - (self.before + self.round_trip / 2)


def reachable(setting: str, readings: Sequence[ClockReading]) -> Finding:
    """The server answers."""
    took = min(reading.round_trip for reading in readings) / timedelta(milliseconds=1)
    text = f"The server answers within {max(took, 0.1):.1f} ms"
    return ok(Check.SERVER_REACHABLE, setting, text)


def unreachable(setting: str, error: DuesweepError) -> Finding:
    """The server does not answer, or breaks off; or there is no ODBC driver to ask it with, or a
    pooler that no session can be opened through.
    """
    if isinstance(error, OdbcDriverError):
        advice = capitalized(error.advice or "install it")
        return fault(Check.DRIVER_IMPORT, setting, error.text, advice)
    advice = error.advice or (
        "check that the server runs, that this machine and every executor can connect to it, and "
        f"that {setting} is right"
    )
    return fault(
        Check.POOLER if isinstance(error, PoolerError) else Check.SERVER_REACHABLE,
        setting,
        error.text,
        f"{capitalized(advice)}; checks that depend on it were not made",
    )


def clock_skew(setting: str, readings: Sequence[ClockReading]) -> Finding:
    """The difference of the clocks, as exactly as the round trip allows."""
    best = min(readings, key=lambda reading: reading.round_trip)
    seconds = best.skew / timedelta(seconds=1)
    if abs(best.skew) - best.round_trip / 2 <= _SKEW:
        text = f"This machine's clock and the server's differ by {abs(seconds):.1f} s"
        return ok(Check.CLOCK_SKEW, setting, text)
    where = "ahead of" if seconds > 0 else "behind"
    return warning(
        Check.CLOCK_SKEW,
        setting,
        f"The server's clock is {abs(seconds):,.1f} s {where} this machine's. Only the server's "
        "decides which messages are due, but times in logs and error queues are wrong by as much",
        "Synchronise both machines by NTP",
    )


def read_clock(server_time: Callable[[], datetime]) -> Sequence[ClockReading]:
    """Ask for the server's time a few times; the fastest answer is the most exact."""
    readings, clock = [], World().clock
    for _ in range(_READINGS):
        before = clock.now()
        server = server_time()
        readings.append(ClockReading(server, before, clock.now()))
    return readings
