"""Examines one service after the other, Spark and the ledger. One that is out of reach is a
finding; the rest continues.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial

from duesweep.config import Config, has_pyspark, route_notice
from duesweep.config.adapters import Needs, QueueConnection, Service, adapter, connections
from duesweep.config.adapters.context import sweep_context
from duesweep.config.adapters.roles import (
    Wanted,
    destination_queues,
    required_queues,
    routed_queues,
    waiting_destinations,
)
from duesweep.core import logs
from duesweep.core.errors import DuesweepError, ExitCode, MessageError, Problem, capitalized
from duesweep.core.finding import (
    NOT_SET_UP,
    SESSION,
    Check,
    Finding,
    Severity,
    fault,
    fault_of,
    is_to_mend,
    ok,
    skipped,
    unreachable,
    warning,
    without,
    worst_first,
)
from duesweep.core.policy import LedgerWriter, Pause
from duesweep.core.quantities import count_text, time_text
from duesweep.core.result import Result
from duesweep.ledger.base import probe_writable
from duesweep.ledger.ledger import Ledger, resolve_writer
from duesweep.operations.endpoint import Endpoint
from duesweep.operations.look import held_by_locks
from duesweep.operations.opening import always_needs_spark, open_spark
from duesweep.stores.base import DriverSession, Store
from duesweep.stores.journal import Journal
from duesweep.sweep.job import SweepContext
from duesweep.sweep.queues_check import refuse_missing_queues
from duesweep.sweep.settle import find_older_copy, require_own

# The doctor reads this many messages, and checks this many of their destinations.
_MESSAGES, _MOST = 1_000, 50
_STORE = "store.dsn"
_START = "the sweep"
_AS_SWEEPS_RUN = (
    "Run the doctor as sweeps are run, by spark-submit.sh, spark-submit or on Databricks; with "
    "--no-spark it leaves Spark out"
)
# A planned pause that is longer says until when.
_FORGOTTEN_AFTER = timedelta(days=1)
_OUT_OF_REACH = {Check.SERVER_REACHABLE, Check.DRIVER_IMPORT, Check.POOLER}


@dataclass(frozen=True, slots=True)
class Diagnosis(Result):
    """The findings on an endpoint, worst first, and the worst severity that is to be mended.
    `error`: why no session could be prepared, as without Java; None: one was, or none was wanted.
    """

    endpoint: str
    worst: Severity
    findings: Sequence[Finding]
    exit_code: ExitCode = field(repr=False)
    error: DuesweepError | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls, endpoint: str, findings: Iterable[Finding], error: DuesweepError | None = None
    ) -> "Diagnosis":
        """The result of these findings for an endpoint."""
        found = worst_first(findings)
        is_bad = any(map(is_to_mend, found))
        worst = found[0].severity if is_bad else Severity.OK
        code = ExitCode.MESSAGES_FAILED if is_bad else ExitCode.DONE
        return cls(endpoint, worst, found, code if error is None else error.exit_code, error)


@dataclass(frozen=True, slots=True)
class Examination:
    """All that is to be examined. `routes` are findings that need no service."""

    context: SweepContext
    services: Sequence[Service]
    routes: Sequence[Finding]
    needs: Needs


def doctor(
    endpoint: Endpoint, *, ignored: Sequence[str] = (), with_spark: bool = True
) -> Diagnosis:
    """Check services and settings, and say what to do about each problem. Raises `ConfigError` for
    an unknown name among the `ignored` checks.
    """
    without([], ignored)
    findings, error = _examine_all(endpoint.config, with_spark=with_spark)
    is_accepted = Check.SPARK_START in ignored
    name = endpoint.config.store.endpoint
    return Diagnosis.of(name, without(findings, ignored), None if is_accepted else error)


def _examine_all(
    config: Config, *, with_spark: bool
) -> tuple[Sequence[Finding], DuesweepError | None]:
    examined: Examination | None = None
    findings: list[Finding] = []
    unknown: str | None = None
    try:
        examined = examination(config)
    except ImportError as error:
        text = f"A database driver cannot be loaded: {error}"
        advice = "Install the library that the error names"
        findings.append(fault(Check.DRIVER_IMPORT, "this machine", text, advice))
    if examined is not None:
        services, unknown = examine_services(examined)
        findings += services
    if not with_spark:
        reason = "--no-spark: Spark and its executors were not checked"
        start = skipped(Check.SPARK_START, SESSION, reason)
        return [*findings, start, *_ledger_without_spark(examined, unknown)], None
    more, failure = _examine_spark(examined, unknown)
    return [*findings, *more], failure


def _ledger_without_spark(examined: Examination | None, unknown: str | None) -> Iterator[Finding]:
    if examined is None:
        return
    context, root = examined.context, examined.context.ledger_root
    if resolve_writer(context.ledger_writer, root) is LedgerWriter.DELTA_RS:
        yield ledger_finding(context.open_ledger(), context.store, unknown)
    else:
        yield skipped(Check.LEDGER, root, "Spark is its writer, and was not started")


def _examine_spark(
    examined: Examination | None, unknown: str | None
) -> tuple[Sequence[Finding], DuesweepError | None]:
    context = None if examined is None else examined.context
    is_needed = context is None or always_needs_spark(context)
    if context is not None and context.spark_from is None and not is_needed:
        unused = skipped(Check.SPARK_START, SESSION, 'sweep.engine is "process": no sweep needs it')
        return [unused, *_ledger_without_spark(examined, unknown)], None
    try:
        spark = open_spark()
    except DuesweepError as error:
        found = [_no_spark(error.problem, is_needed=is_needed)]
        found += _ledger_without_spark(examined, unknown)
        return found, error if is_needed else None
    from duesweep.operations.doctor_spark import spark_findings  # noqa: PLC0415 - loads Spark

    logs.step("checks Spark and its executors")
    needs = examined.needs if examined else Needs(["duesweep", "pyarrow"])
    findings = [*spark_findings(spark, needs, None if context is None else context.store)]
    if context is not None:
        logs.step("checks the ledger")
        findings.append(ledger_finding(context.open_ledger(spark), context.store, unknown))
    return findings, None


def _no_spark(why: Problem, *, is_needed: bool) -> Finding:
    """There is no session. Who has not installed Spark does without it."""
    if is_needed:
        return fault_of(Check.SPARK_START, SESSION, why, _AS_SWEEPS_RUN)
    text = f"Large sweeps run in process, without Spark: {why.text}"
    if not has_pyspark():
        return skipped(Check.SPARK_START, SESSION, text)
    return warning(Check.SPARK_START, SESSION, text, capitalized(why.advice or _AS_SWEEPS_RUN))


def ledger_finding(ledger: Ledger, store: Store, unknown: str | None) -> Finding:
    """Whether the ledger can be read and written, and belongs to the journal. `unknown`: why the
    journal cannot be read.
    """
    check, root = Check.LEDGER, ledger.root
    try:
        ledger.try_out()
        identity = ledger.read()
        identity.refuse_stray()
        if identity.beyond:
            text = f"The ledger has {' and '.join(identity.beyond)}, which delta-rs cannot read"
            advice = 'Set ledger.writer = "spark", with which all commands read it'
            return fault(check, root, text, advice)
        found = identity.ledger_id
        there = f"There is {'no ledger yet' if found is None else f'ledger {found}'}"
        if unknown is not None:
            text = f"{there}; whether it is the journal's is not known: {unknown}"
            return skipped(check, root, text)
        with store.open_driver() as session:
            bound = require_own(session.binding, ledger, identity)
            older = find_older_copy(session, ledger, identity)
    except DuesweepError as error:
        advice = "Check ledger.root, and who may read and write it"
        return fault_of(check, root, error.problem, advice)
    if older is not None:
        return fault_of(check, root, older)
    if bound is None:
        return ok(check, root, f"{there}; the journal takes it with the first sweep")
    return ok(check, root, f"Ledger {bound}, which the journal belongs to")


def examine_services(examined: Examination) -> tuple[Sequence[Finding], str | None]:
    """Findings on services, routes and the store; and why the journal cannot be read, None if it
    can.
    """
    findings, ledger = [*examined.routes], list(_ledger_folder(examined.context.ledger_root))
    for service in examined.services:
        logs.step(f"checks {service.setting}")
        findings += _examine(service)
    if any(f.check in _OUT_OF_REACH and _is_bad(f, _STORE) for f in findings):
        reason = "The store cannot be reached"
        start = skipped(Check.SWEEP_START, _START, reason)
        return [*findings, start, *ledger], reason
    logs.step("repeats the checks at the start of a sweep")
    more, unknown = _examine_start(examined.context, is_explained=any(map(_is_bad, findings)))
    if any(f.check == Check.SETUP and _is_bad(f) for f in findings):
        unknown = NOT_SET_UP
    return [*findings, *more, *ledger], unknown


def _ledger_folder(root: str) -> Iterator[Finding]:
    try:
        probe_writable(root)
    except DuesweepError as error:
        yield fault_of(Check.LEDGER, root, error.problem, "Free or repair the storage")


def _examine(service: Service) -> Sequence[Finding]:
    try:
        return [replace(finding, setting=service.setting) for finding in service.findings()]
    except DuesweepError as error:
        return [unreachable(service.setting, error)]


def _examine_start(
    context: SweepContext, *, is_explained: bool
) -> tuple[list[Finding], str | None]:
    """The checks of a sweep before it starts. If it would not start, and no other finding explains
    that, the reason is a fault of its own.
    """
    findings: list[Finding] = []
    unknown: str | None = "The journal cannot be read"
    try:
        with context.store.open_driver() as session:
            session.check()
            # A lock on the delayed table would show here.
            session.due.find_work(timedelta(seconds=context.look_ahead.longest_seconds))
            findings += _notices(context.store.source, session)
            session.binding.ledger()
            unknown = None
            findings += _unsettled(context.ledger_root, session.journal)
            context.queue.check(context.retry.error_queue)
            # For all stored messages: the ones that are due later would also be refused.
            refuse_missing_queues(context, session.due, None)
    except DuesweepError as error:
        return [*findings, _refusal(error, is_explained=is_explained)], unknown
    return [*findings, ok(Check.SWEEP_START, _START, "A sweep can start")], unknown


def _notices(source: str, session: DriverSession) -> Iterator[Finding]:
    notices = session.notices()
    for notice in notices:
        advice = capitalized(notice.advice or "look into it")
        yield warning(Check.STORE_NOTICES, source, notice.text, advice)
    pauses = session.due.pauses()
    for pause in pauses:
        yield _pause(source, pause)
    locked = held_by_locks(session.due, session.due.horizon(), only_stuck=True)
    for held in locked:
        text = f"{count_text(held.messages or 0, 'due message')} locked by {held.why}"
        yield warning(Check.STORE_NOTICES, source, text, "End or commit that transaction")
    if not (notices or pauses or locked):
        yield ok(Check.STORE_NOTICES, source, "The store reports no problems")


def _unsettled(root: str, journal: Journal) -> Iterator[Finding]:
    """A warning of results that the ledger has not got, and that no process brings there now."""
    left = [one for one in journal.unsettled() if not journal.still_alive(one.sweep_id)]
    if left:
        first = min(one.started_at for one in left)
        lacking = count_text(len(left), "sweep or command")
        text = f"It lacks {lacking} of the journal; the first began at {time_text(first)}"
        advice = "Run the command `sweep`, which writes them there or says why it cannot"
        yield warning(Check.LEDGER, root, text, advice)


def _pause(source: str, pause: Pause) -> Finding:
    end = "" if pause.until is None else f", until {pause.until:%Y-%m-%d %H:%M} UTC"
    text = f"Paused: {pause.pattern}{end}: {pause.reason} ({pause.given_by})"
    is_old = datetime.now(UTC) - pause.paused_at > _FORGOTTEN_AFTER
    if pause.until is None and is_old:
        advice = f"If it is over, give the command: resume {pause.pattern!r}"
        return warning(Check.STORE_NOTICES, source, f"{text}; for more than a day", advice)
    return ok(Check.STORE_NOTICES, source, text)


def _refusal(error: DuesweepError, *, is_explained: bool) -> Finding:
    if is_explained:
        reason = f"A sweep would not start: {error}. Correct the other faults first"
        return skipped(Check.SWEEP_START, _START, reason)
    told = replace(error.problem, text=f"A sweep would not start: {error.text}")
    return fault_of(Check.SWEEP_START, _START, told)


def _is_bad(finding: Finding, about: str | None = None) -> bool:
    return finding.severity == Severity.FAULT and about in {None, finding.about}


def examination(config: Config) -> Examination:
    """The things to check: each database that the configuration names, with its queues: the
    endpoint's own, the error queue, the destinations of waiting messages, and queues that a
    [[route]] names. Connects to nothing; raises `ConfigError` as a sweep does.
    """
    required = required_queues(config)
    return Examination(
        sweep_context(config),
        list(_services(config, required)),
        list(_route_findings(config, required)),
        _needs(config),
    )


def _services(config: Config, required: Sequence[Wanted]) -> Iterator[Service]:
    found = connections(config)

    @cache
    def waiting() -> Sequence[str]:
        # If they cannot be read, the store's own findings say why.
        with suppress(DuesweepError):
            return waiting_destinations(config, _MESSAGES)
        return ()

    def queues(*connections: QueueConnection) -> Sequence[tuple[str, object]]:
        tables: dict[object, str] = {}
        for connection in connections:
            wanted = [*required]
            if connection.kind != "rabbitmq":
                wanted += destination_queues(config, waiting()[:_MOST])
                wanted += routed_queues(config)
            here = [one for one in wanted if one.connection == connection.name]
            for role, table in _tables(connection, here):
                tables.setdefault(table, role)
        return [(role, table) for table, role in tables.items()]

    if not config.store.is_custom:
        beside = [connection for connection in found.values() if connection.is_beside]
        yield adapter(config.store.dialect).service(config, None, partial(queues, *beside))
        yield Service(_STORE, lambda: _unrouted(config, waiting()))
    for connection in found.values():
        if not connection.is_beside:
            look = partial(queues, connection)
            yield adapter(connection.kind).service(config, connection, look)


def _unrouted(config: Config, waiting: Sequence[str]) -> Iterator[Finding]:
    """Findings for destinations of waiting messages that no route fits, and for unchecked ones."""
    for one in destination_queues(config, waiting[:_MOST]):
        if one.problem is not None:
            text = f"No [[route]] takes the destination {one.written!r} of waiting messages: they"
            advice = f"Add a [[route]] whose destination fits {one.written!r}"
            yield fault(Check.ROUTE, one.written, f"{text} fail", advice)
    more = len(waiting) - _MOST
    if more > 0:
        text = f"Messages wait for {more} more destinations; their queues were not checked"
        yield skipped(Check.ROUTE, "destinations", text)


def _tables(connection: QueueConnection, wanted: Sequence[Wanted]) -> Iterator[tuple[str, object]]:
    """Roles and tables of queues on a connection. An address that cannot be read is left out: the
    sweep refuses it with a reason.
    """
    for one in wanted:
        with suppress(MessageError):
            yield one.role, adapter(connection.kind).queue_table(connection, one.name)


def _route_findings(config: Config, required: Sequence[Wanted]) -> Iterator[Finding]:
    notice = route_notice(config)
    if notice is not None:
        yield fault_of(Check.ROUTE, "[[route]]", notice)
    for one in required if config.route else ():
        if one.problem is not None:
            text = f"{one.problem}. It is the {one.role}: messages for it fail"
            advice = f"Add a [[route]] whose destination fits {one.written!r}"
            yield fault(Check.ROUTE, one.written, text, advice)
        else:
            text = f"The {one.role} is {one.name} on queues.{one.connection}"
            yield ok(Check.ROUTE, one.written, text)


def _needs(config: Config) -> Needs:
    """What executors have to load, for the store and all connections."""
    dsns: dict[str, list[str]] = {}
    if not config.store.is_custom:
        dsns[config.store.dialect] = [config.store.dsn.get_secret_value()]
    for connection in connections(config).values():
        own = [connection.dsn.get_secret_value()] if connection.dsn else []
        dsns.setdefault(connection.kind, []).extend(own)
    found = [adapter(kind).needs(own) for kind, own in dsns.items()]
    modules = ["duesweep", "pyarrow", *(name for needs in found for name in needs.modules)]
    return Needs(modules, [name for needs in found for name in needs.odbc_drivers])
