"""Examines one service after the other. One that is out of reach is a finding; the rest goes on."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from duesweep.checks.finding import (
    Check,
    Finding,
    Severity,
    capitalized,
    fault_of,
    ok,
    skipped,
    warning,
)
from duesweep.checks.server import unreachable
from duesweep.checks.table_findings import NOT_SET_UP
from duesweep.core.errors import DuesweepError
from duesweep.core.policy import Pause
from duesweep.doctor.spark import Needs
from duesweep.ledger.base import probe_writable
from duesweep.stores.base import DriverSession
from duesweep.sweep.job import SweepContext
from duesweep.sweep.queues_check import refuse_missing_queues

_STORE = "store.dsn"
_START = "the sweep"
# Nobody plans a pause for longer without saying until when.
_FORGOTTEN_AFTER = timedelta(days=1)
_OUT_OF_REACH = {Check.SERVER_REACHABLE, Check.DRIVER_IMPORT}


@dataclass(frozen=True, slots=True)
class Service:
    """A database or broker. `findings` raises `DuesweepError` if it is out of reach."""

    setting: str
    findings: Callable[[], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Examination:
    """All that is to be examined. `routes` are findings that need no service."""

    context: SweepContext
    services: Sequence[Service]
    routes: Sequence[Finding]
    needs: Needs


@dataclass(frozen=True, slots=True)
class LedgerBinding:
    """The ledger that the journal belongs to, None if it has none yet; or why that is unknown."""

    ledger_id: UUID | None = None
    problem: str | None = None


def examine_services(examination: Examination) -> tuple[Sequence[Finding], LedgerBinding]:
    """Findings on services, routes and the store; and the ledger that the journal is bound to."""
    findings, ledger = [*examination.routes], list(_ledger_folder(examination.context.ledger_root))
    for service in examination.services:
        findings += _examine(service)
    if any(f.check in _OUT_OF_REACH and _is_bad(f, _STORE) for f in findings):
        reason = "The store is out of reach"
        start = skipped(Check.SWEEP_START, _START, reason)
        return [*findings, start, *ledger], LedgerBinding(problem=reason)
    more, binding = _examine_start(examination.context, is_explained=any(map(_is_bad, findings)))
    if any(f.check == Check.SETUP and _is_bad(f) for f in findings):
        binding = LedgerBinding(problem=NOT_SET_UP)
    return [*findings, *more, *ledger], binding


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
) -> tuple[list[Finding], LedgerBinding]:
    """What a sweep checks before it starts. If it would not start, and no other finding explains
    that, the reason is a fault of its own.
    """
    findings: list[Finding] = []
    binding = LedgerBinding(problem="The journal cannot be read")
    try:
        with context.store.open_driver() as session:
            session.check()
            findings += _notices(context.store.source, session)
            binding = LedgerBinding(session.binding())
            context.queue.check(context.error_queue)
            # For all stored messages: those that are due later would be refused, too.
            refuse_missing_queues(context, session, None)
    except DuesweepError as error:
        return [*findings, _refusal(error, is_explained=is_explained)], binding
    return [*findings, ok(Check.SWEEP_START, _START, "A sweep would start")], binding


def _notices(source: str, session: DriverSession) -> Iterator[Finding]:
    notices = session.notices()
    for notice in notices:
        advice = capitalized(notice.advice or "look into it")
        yield warning(Check.STORE_NOTICES, source, notice.text, advice)
    pauses = session.pauses()
    for pause in pauses:
        yield _pause(source, pause)
    if not notices and not pauses:
        yield ok(Check.STORE_NOTICES, source, "The store reports no problems")


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
