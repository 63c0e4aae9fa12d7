"""Findings on Spark, its executors and the ledger."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from duesweep.core.errors import Problem
from duesweep.core.finding import Check, Finding, fault, fault_of, ok, skipped, warning

_SESSION = "the Spark session"
_ENOUGH_TRIES = 2


@dataclass(frozen=True, slots=True)
class Versions:
    """Of Python and of duesweep; the latter None where it cannot be imported."""

    python: str
    duesweep: str | None


@dataclass(frozen=True, slots=True)
class ExecutorFacts:
    """One machine's Python; `failures` say what could not be loaded there, and why."""

    host: str
    versions: Versions
    failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SparkFacts:
    """What a session says of itself. `task_tries` None where it cannot be known; `problem` is why
    no Python ran on the executors, where none did.
    """

    version: str
    master: str
    speculation: bool
    task_tries: int | None
    session_zone: str
    jvm_zone: str | None
    driver: Versions
    executors: Sequence[ExecutorFacts]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """`found` is the ledger at the root, `bound` the one that the journal belongs to; `problem` is
    why the first cannot be known, `unknown` why the second cannot.
    """

    root: str
    found: UUID | None
    bound: UUID | None
    problem: Problem | None = None
    unknown: str | None = None


def spark_findings(facts: SparkFacts) -> Iterator[Finding]:
    """Findings on the session and its executors."""
    text = f"Spark {facts.version} runs on {facts.master}"
    yield ok(Check.SPARK_START, _SESSION, text)
    yield _speculation(facts)
    yield _task_tries(facts)
    yield _session_zone(facts)
    yield _jvm_zone(facts)
    yield from _executors(facts)


def not_started(error: str) -> Finding:
    """Spark did not start."""
    return fault(
        Check.SPARK_START,
        _SESSION,
        f"Spark did not start: {error}",
        "Run the doctor as sweeps are run, by spark-submit.sh, spark-submit or on Databricks; with "
        "--no-spark it leaves Spark out",
    )


def ledger_finding(facts: LedgerFacts) -> Finding:
    """Whether the ledger can be read, and belongs to the journal."""
    check, root = Check.LEDGER, facts.root
    if facts.problem is not None:
        return fault_of(
            check, root, facts.problem, "Check ledger.root, and who may read and write it"
        )
    if facts.unknown is not None:
        there = "no ledger yet" if facts.found is None else f"ledger {facts.found}"
        text = f"There is {there}; whether it is the journal's is not known: {facts.unknown}"
        return skipped(check, root, text)
    if facts.bound is None:
        there = "no ledger yet" if facts.found is None else f"ledger {facts.found}"
        return ok(check, root, f"There is {there}; the journal takes it with the first sweep")
    if facts.found == facts.bound:
        return ok(check, root, f"Ledger {facts.found}, which the journal belongs to")
    there = "none" if facts.found is None else f"ledger {facts.found}"
    return fault(
        check,
        root,
        f"The journal belongs to ledger {facts.bound}, and there is {there} here",
        "Set ledger.root to where the journal's ledger is, or, if that is gone for good, free the "
        "journal from it with the command `setup --rebind`",
    )


def _speculation(facts: SparkFacts) -> Finding:
    if not facts.speculation:
        return ok(Check.SPARK_SPECULATION, _SESSION, "spark.speculation is off")
    return fault(
        Check.SPARK_SPECULATION,
        _SESSION,
        "spark.speculation is on: Spark starts second copies of slow tasks, which claim beside the "
        "first and load both databases; where a queue has a connection of its own, the copy that "
        "is killed may leave messages delivered twice",
        "Set spark.speculation=false where the session is prepared (--conf, the cluster's policy)",
    )


def _task_tries(facts: SparkFacts) -> Finding:
    check, tries = Check.SPARK_TASK_RETRIES, facts.task_tries
    if tries is None:
        return skipped(check, _SESSION, "It is unknown how often a task is tried")
    if tries >= _ENOUGH_TRIES:
        return ok(check, _SESSION, f"A task is tried {tries} times")
    return warning(
        check,
        _SESSION,
        "A task is tried once: one connection that is cut while the plan is read ends the whole "
        "sweep early",
        "Set spark.task.maxFailures=4; in local mode, the master local[*,4]",
    )


def _session_zone(facts: SparkFacts) -> Finding:
    more = "" if facts.session_zone == "UTC" else "; instants are right, and shown in that zone"
    text = f"spark.sql.session.timeZone is {facts.session_zone}{more}"
    return ok(Check.SPARK_TIME_ZONE, _SESSION, text)


def _jvm_zone(facts: SparkFacts) -> Finding:
    if facts.jvm_zone is None:
        return skipped(Check.JVM_TIME_ZONE, _SESSION, "The JVM's time zone is unknown")
    text = f"The JVM is in {facts.jvm_zone}, which does not matter for what is due"
    return ok(Check.JVM_TIME_ZONE, _SESSION, text)


def _executors(facts: SparkFacts) -> Iterator[Finding]:
    if facts.problem is not None:
        yield fault(
            Check.EXECUTOR_DRIVERS,
            "the executors",
            f"No Python of duesweep's runs there: {facts.problem}",
            "Give the executors the driver's Python version, by spark-submit.sh, which ships an "
            "environment, or PYSPARK_PYTHON",
        )
    for executor in facts.executors:
        yield from _drivers(executor)
        yield _versions(executor, facts.driver)


def _drivers(executor: ExecutorFacts) -> Iterator[Finding]:
    check = Check.EXECUTOR_DRIVERS
    for name, error in executor.failures.items():
        yield fault(
            check,
            executor.host,
            f"{name} cannot be loaded: {error}",
            f"Bring {name} to this host: with the environment that spark-submit.sh ships, as a "
            "library of the cluster, or, what pyodbc loads, as a package of the system "
            "(Debian, Ubuntu: libodbc2, libgssapi-krb5-2)",
        )
    if not executor.failures:
        yield ok(check, executor.host, "All drivers can be loaded")


def _versions(executor: ExecutorFacts, driver: Versions) -> Finding:
    check, own = Check.EXECUTOR_VERSIONS, executor.versions
    text = f"Python {own.python}, duesweep {own.duesweep or '-'}"
    if own.duesweep is None or own == driver:
        # That duesweep is missing has been said.
        return ok(check, executor.host, text)
    return warning(
        check,
        executor.host,
        f"{text}; the driver has Python {driver.python}, duesweep {driver.duesweep}",
        "Bring the same package and Python to all hosts, by spark-submit.sh or the cluster's "
        "libraries",
    )
