"""Findings: the results of checks, each about one thing. The doctor shows all; a sweep is refused
by the first that stops it. Things without a fault need no finding.
"""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from duesweep.core.errors import (
    ConfigError,
    DuesweepError,
    OdbcDriverError,
    Problem,
    capitalized,
)

NOT_SET_UP = "The command `setup` has not run"
# What findings on Spark are about.
SESSION = "the Spark session"
# How many tables a notice names.
_SHOWN = 3


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
    MANAGEMENT_API = "management-api"
    LADDER_EXCHANGE = "ladder-exchange"
    LADDER_QUEUE = "ladder-queue"
    LADDER_POLICY = "ladder-policy"
    LADDER_BINDING = "ladder-binding"
    DELIVERY_BINDING = "delivery-binding"
    FIRST_LADDER = "first-ladder"
    STORE_NOTICES = "store-notices"
    SWEEP_START = "sweep-start"
    SPARK_START = "spark-start"
    SPARK_JDBC = "spark-jdbc"
    SPARK_SPECULATION = "spark-speculation"
    SPARK_TASK_RETRIES = "spark-task-retries"
    EXECUTOR_DRIVERS = "executor-drivers"
    LEDGER = "ledger"


@dataclass(frozen=True, slots=True)
class Finding:
    """`about` is a setting, a table or a host. `advice` says what to do, None if nothing: if there
    are `statements`, to run them in the database that `setting` names. `stops`: a sweep that finds
    this does not start. `only_reads`: this user lacks all rights on a table but a reader's.
    """

    check: Check
    severity: Severity
    about: str
    found: str
    advice: str | None = None
    statements: Sequence[str] = ()
    setting: str | None = None
    stops: bool = field(default=False, repr=False)
    only_reads: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        if self.statements and self.advice is None:
            object.__setattr__(self, "advice", f"run {'; '.join(self.statements)}")

    @property
    def problem(self) -> Problem:
        """The same as a sweep says it, which names the subject."""
        is_named = self.about in self.found
        return Problem(self.found if is_named else f"{self.about}: {self.found}", self.advice)


def ok(check: Check, about: str, found: str) -> Finding:
    """A thing that is well, with a fact that tells people more than that."""
    return Finding(check, Severity.OK, about, found)


def skipped(check: Check, about: str, reason: str) -> Finding:
    """A check that was not made."""
    return Finding(check, Severity.SKIPPED, about, reason)


def warning(
    check: Check,
    about: str,
    found: str,
    advice: str | None = None,
    *,
    statements: Sequence[str] = (),
) -> Finding:
    """Sweeps work, but they are slow, restricted or at risk."""
    return Finding(check, Severity.WARNING, about, found, advice, statements)


def fault(
    check: Check,
    about: str,
    found: str,
    advice: str | None = None,
    *,
    statements: Sequence[str] = (),
    stops: bool = False,
) -> Finding:
    """Sweeps, or some of their messages, fail."""
    return Finding(check, Severity.FAULT, about, found, advice, statements, stops=stops)


def fault_of(
    check: Check,
    about: str,
    problem: Problem,
    otherwise: str = "correct the named setting",
    *,
    stops: bool = False,
) -> Finding:
    """The fault that an error or a notice reports; `otherwise` is the advice if it has none."""
    return fault(check, about, problem.text, problem.advice or otherwise, stops=stops)


def refuse(findings: Iterable[Finding]) -> None:
    """Raise `ConfigError` for the first finding that stops a sweep; the checks after it are not
    made.
    """
    for finding in findings:
        if finding.stops:
            raise ConfigError.of(finding.problem)


def is_to_mend(finding: Finding) -> bool:
    """Whether a person must act."""
    return finding.severity in {Severity.FAULT, Severity.WARNING}


def notices(findings: Iterable[Finding]) -> Iterator[Problem]:
    """The findings that are to be mended, as a sweep says them that starts nevertheless: one for
    all tables with the same.
    """
    tables: dict[str, list[str]] = {}
    advice: dict[str, str | None] = {}
    for each in filter(is_to_mend, findings):
        tables.setdefault(each.found, []).append(each.about)
        advice.setdefault(each.found, each.advice)
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
    """The findings for people, with their advice as a sentence: faults, warnings, then the rest;
    each in the order of the checks.
    """
    order = list(Severity)
    told = [replace(one, advice=one.advice and capitalized(one.advice)) for one in findings]
    return sorted(told, key=lambda finding: order.index(finding.severity))


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


def unreachable(setting: str, error: DuesweepError) -> Finding:
    """The server does not answer, or breaks off; or there is no ODBC driver to ask it with."""
    if isinstance(error, OdbcDriverError):
        return fault(Check.DRIVER_IMPORT, setting, error.text, error.advice or "install it")
    advice = error.advice or (
        "check that the server runs, that this machine and every executor can connect to it, and "
        f"that {setting} is right"
    )
    return fault(
        Check.SERVER_REACHABLE,
        setting,
        error.text,
        f"{advice}; checks that depend on it were not made",
    )
