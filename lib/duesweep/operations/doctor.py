"""Examines one service after the other, Spark and the ledger. One that is out of reach is a
finding; the rest continues.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import TYPE_CHECKING

from duesweep.config import Config, has_pyspark, route_notice
from duesweep.config.adapters import Needs, QueueConnection, adapter, connections
from duesweep.config.adapters.roles import (
    WantedQueue,
    destination_queues,
    required_queues,
    routed_queues,
    waiting_destinations,
)
from duesweep.core import logs
from duesweep.core.errors import DuesweepError, ExitCode, MessageError
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
from duesweep.core.policy import LedgerWriter
from duesweep.core.quantities import count_text, time_text
from duesweep.core.result import Result, exit_code_of
from duesweep.ledger.base import probe_writable
from duesweep.ledger.ledger import Ledger
from duesweep.operations.endpoint import Endpoint
from duesweep.operations.look import held_by_locks
from duesweep.operations.opening import choose_engine, open_spark
from duesweep.stores.base import DriverSession, Store
from duesweep.sweep.job import SweepContext
from duesweep.sweep.pairing import find_older_copy, require_own
from duesweep.sweep.queues_check import refuse_missing_queues

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The doctor reads this many messages, and checks this many of their destinations.
_MESSAGES, _MOST = 1_000, 50
_STORE = "store.dsn"
_START = "the sweep"
_AS_SWEEPS_RUN = (
    "run the doctor as sweeps are run, by spark-submit.sh, spark-submit or on Databricks; with "
    "--no-spark it leaves Spark out"
)
# A planned pause that is longer says until when.
_FORGOTTEN_AFTER = timedelta(days=1)
_OUT_OF_REACH = {Check.SERVER_REACHABLE, Check.DRIVER_IMPORT}


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
        return cls(endpoint, worst, found, code if error is None else exit_code_of(error), error)


# The setting of a database or a broker, and the findings on it, made when they are read.
_Service = tuple[str, Iterable[Finding]]


def doctor(
    endpoint: Endpoint, *, ignored: Sequence[str] = (), with_spark: bool = True
) -> Diagnosis:
    """Check services and settings, and say what to do about each problem. Raises `ConfigError` for
    an unknown name among the `ignored` checks.
    """
    without([], ignored)
    findings, needs, context, unknown = list[Finding](), Needs(["duesweep", "pyarrow"]), None, None
    try:
        context, services = endpoint.context, list(services_of(endpoint.config))
        needs = _needs(endpoint.config)
    except ImportError as error:
        text = f"A database driver cannot be loaded: {error}"
        advice = "install the library that the error names"
        findings.append(fault(Check.DRIVER_IMPORT, "this machine", text, advice))
    else:
        routes = route_findings(endpoint.config)
        findings, unknown = examine_services(context, services, routes)
    spark, more, failure = _examine_spark(context, needs, is_wanted=with_spark)
    findings += more
    # A folder that cannot be written needs no trial.
    is_known = any(f.check is Check.LEDGER and f.severity is Severity.FAULT for f in findings)
    if context is not None and not is_known:
        logs.step("checks the ledger")
        root = context.ledger_root
        if spark is None and context.ledger_writer is LedgerWriter.SPARK:
            why = "Spark is its writer, and was not started"
            findings.append(skipped(Check.LEDGER, root, why))
        else:
            findings.append(ledger_finding(context.open_ledger(spark), context.store, unknown))
    error_of_spark = None if Check.SPARK_START in ignored else failure
    name = endpoint.config.store.endpoint
    return Diagnosis.of(name, without(findings, ignored), error_of_spark)


def _examine_spark(
    context: SweepContext | None, needs: Needs, *, is_wanted: bool
) -> "tuple[SparkSession | None, Iterable[Finding], DuesweepError | None]":
    """The session if there is one, findings on it, and the error if no sweep starts without it."""
    is_needed = context is None or choose_engine(context).needs_spark
    why = None if is_wanted else "--no-spark: Spark and its executors were not checked"
    if is_wanted and context is not None and context.spark_from is None and not is_needed:
        why = 'sweep.engine is "process": no sweep needs it'
    if why is not None:
        return None, [skipped(Check.SPARK_START, SESSION, why)], None
    try:
        spark = open_spark(None if context is None else context.ledger_root)
    except DuesweepError as error:
        if is_needed:
            found = fault_of(Check.SPARK_START, SESSION, error.problem, _AS_SWEEPS_RUN)
            return None, [found], error
        text = f"Large sweeps run in process, without Spark: {error.text}"
        if not has_pyspark():
            # Who has not installed it does without it.
            return None, [skipped(Check.SPARK_START, SESSION, text)], None
        advice = error.advice or _AS_SWEEPS_RUN
        return None, [warning(Check.SPARK_START, SESSION, text, advice)], None
    from duesweep.operations.doctor_spark import spark_findings  # noqa: PLC0415 - loads Spark

    logs.step("checks Spark and its executors")
    return spark, spark_findings(spark, needs, None if context is None else context.store), None


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
            advice = 'set ledger.writer = "spark", with which all commands read it'
            return fault(check, root, text, advice)
        found = identity.ledger_id
        there = f"There is {'no ledger yet' if found is None else f'ledger {found}'}"
        if unknown is not None:
            text = f"{there}; whether it is the journal's is not known: {unknown}"
            return skipped(check, root, text)
        with store.open_driver() as session:
            bound = require_own(session.binding, ledger, identity)
            older = find_older_copy(session, ledger)
    except DuesweepError as error:
        advice = "check ledger.root, and who may read and write it"
        return fault_of(check, root, error.problem, advice)
    if older is not None:
        return fault_of(check, root, older)
    if bound is None:
        return ok(check, root, f"{there}; the journal takes it with the first sweep")
    return ok(check, root, f"Ledger {bound}, which the journal belongs to")


def examine_services(
    context: SweepContext, services: Iterable[_Service], routes: Iterable[Finding] = ()
) -> tuple[list[Finding], str | None]:
    """Findings on services, the ones on routes, and on the store; and why the journal cannot be
    read, None if it can.
    """
    findings = list(routes)
    for setting, found in services:
        logs.step(f"checks {setting}")
        try:
            findings += [replace(each, setting=setting) for each in found]
        except DuesweepError as error:
            findings.append(unreachable(setting, error))
    faults = [each for each in findings if each.severity == Severity.FAULT]
    try:
        probe_writable(context.ledger_root)
    except DuesweepError as error:
        advice = "free or repair the storage"
        findings.append(fault_of(Check.LEDGER, context.ledger_root, error.problem, advice))
    if any(each.check in _OUT_OF_REACH and each.about == _STORE for each in faults):
        reason = "The store cannot be reached"
        return [*findings, skipped(Check.SWEEP_START, _START, reason)], reason
    logs.step("repeats the checks at the start of a sweep")
    more, unknown = _try_start(context, is_explained=bool(faults))
    is_set_up = not any(each.check == Check.SETUP for each in faults)
    return [*findings, *more], unknown if is_set_up else NOT_SET_UP


def _try_start(
    context: SweepContext, *, is_explained: bool
) -> tuple[Sequence[Finding], str | None]:
    """The checks of a sweep before it starts. If it would not start, and no other finding explains
    that, the reason is a fault of its own. Also why the journal cannot be read, None if it can.
    """
    findings, unknown = list[Finding](), "The journal cannot be read"
    try:
        with context.store.open_driver() as session:
            session.check()
            # A lock on the delayed table would show here.
            ahead = timedelta(seconds=context.look_ahead.longest_seconds)
            session.due.find_work(session.due.horizon().looking_ahead(ahead))
            findings += _notices(context.store.source, session)
            session.binding.read()
            unknown = ""
            findings += _unsettled(context.ledger_root, session)
            context.queue.check(context.retry.error_queue, session)
            # For all stored messages: the ones that are due later would also be refused.
            refuse_missing_queues(context, session.due, None)
    except DuesweepError as error:
        if is_explained:
            reason = f"A sweep would not start: {error}. Correct the other faults first"
            findings.append(skipped(Check.SWEEP_START, _START, reason))
        else:
            told = replace(error.problem, text=f"A sweep would not start: {error.text}")
            findings.append(fault_of(Check.SWEEP_START, _START, told))
    else:
        findings.append(ok(Check.SWEEP_START, _START, "A sweep can start"))
    return findings, unknown or None


def _notices(source: str, session: DriverSession) -> Iterator[Finding]:
    check = Check.STORE_NOTICES
    for notice in session.notices():
        yield warning(check, source, notice.text, notice.advice or "look into it")
    for pause in session.due.pauses():
        if pause.until is None and datetime.now(UTC) - pause.paused_at > _FORGOTTEN_AFTER:
            text = f"Paused for more than a day: {pause.pattern}: {pause.reason} ({pause.given_by})"
            advice = f"if it is over, give the command: resume {shlex.quote(pause.pattern)}"
            yield warning(check, source, text, advice)
    for held in held_by_locks(session.due, session.due.horizon(), only_stuck=True):
        text = f"{count_text(held.messages or 0, 'due message')} locked by {held.why}"
        yield warning(check, source, text, "end or commit that transaction")


def _unsettled(root: str, session: DriverSession) -> Iterator[Finding]:
    """A warning of results that the ledger has not got, and that no process brings there now."""
    left = [one for one in session.journal.unsettled() if not one.is_alive]
    if left:
        first = min(one.started_at for one in left)
        lacking = count_text(len(left), "sweep or command")
        text = f"It lacks {lacking} of the journal; the first began at {time_text(first)}"
        advice = "run the command `sweep`, which writes them there or says why it cannot"
        yield warning(Check.LEDGER, root, text, advice)


def route_findings(config: Config) -> Sequence[Finding]:
    """Findings on routes, which need no service."""
    notice = route_notice(config)
    routes = [fault_of(Check.ROUTE, "[[route]]", notice)] if notice is not None else []
    return [*routes, *_unrouted(required_queues(config))]


def services_of(config: Config) -> Iterator[_Service]:
    """The services to check: each database that the configuration names, with its queues: the
    endpoint's own, the error queue, the destinations of waiting messages, and queues that a
    [[route]] names. Connects to nothing; raises `ConfigError` as a sweep does.
    """
    found, required = connections(config), required_queues(config)

    @cache
    def waiting() -> Sequence[str]:
        # If they cannot be read, the store's own findings say why.
        with suppress(DuesweepError):
            return waiting_destinations(config, _MESSAGES)
        return ()

    def queues(*places: QueueConnection) -> Sequence[tuple[str, object]]:
        tables: dict[object, str] = {}
        for place in places:
            waited_for = destination_queues(config, waiting()[:_MOST])
            for one in [*required, *waited_for, *routed_queues(config)]:
                # An address that cannot be read is left out: the sweep refuses it with a reason.
                with suppress(MessageError):
                    if one.connection == place.name:
                        table = adapter(place.kind).queue_table(place, one.name)
                        tables.setdefault(table, one.role)
        return [(role, table) for table, role in tables.items()]

    def unrouted() -> Iterator[Finding]:
        yield from _unrouted(destination_queues(config, waiting()[:_MOST]))
        if (more := len(waiting()) - _MOST) > 0:
            text = f"Messages wait for {more} more destinations; their queues were not checked"
            yield skipped(Check.ROUTE, "destinations", text)

    if not config.store.is_custom:
        beside = [connection for connection in found.values() if connection.is_beside]
        store = adapter(config.store.dialect)
        yield _STORE, store.examine(config, None, partial(queues, *beside))
        yield _STORE, unrouted()
    for connection in found.values():
        if not connection.is_beside:
            setting = connection.server_setting if connection.dsn else connection.setting
            look = partial(queues, connection)
            yield setting, adapter(connection.kind).examine(config, connection, look)


def _unrouted(wanted: Iterable[WantedQueue]) -> Iterator[Finding]:
    for one in wanted:
        if one.problem is not None:
            text = f"{one.problem}. It is the {one.role}: messages for it fail"
            yield fault(Check.ROUTE, one.written, text, one.advice)


def _needs(config: Config) -> Needs:
    """What executors have to load, for the store and all connections."""
    dsns: dict[str, list[str]] = {}
    if not config.store.is_custom:
        dsns[config.store.dialect] = [config.store.dsn.get_secret_value()]
    for connection in connections(config).values():
        own = [connection.dsn] if connection.dsn else []
        dsns.setdefault(connection.kind, []).extend(own)
    found = [adapter(kind).needs(own) for kind, own in dsns.items()]
    modules = ["duesweep", "pyarrow", *(name for needs in found for name in needs.modules)]
    return Needs(modules, [name for needs in found for name in needs.odbc_drivers])
