"""`duesweep sweep` for several endpoints: a line for each, and the sums of all."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from duesweep import config as configuration
from duesweep.cli import documents
from duesweep.cli.documents import End
from duesweep.cli.each import worst
from duesweep.cli.monitored import Ran, tell_of
from duesweep.core.account import held_in_sweep
from duesweep.core.errors import ExitCode, NothingDueError, make_printable
from duesweep.fleet.members import Failure, Member, members_of
from duesweep.fleet.sweeping import Looked, Swept, look_at_all, sweep_all
from duesweep.report.idle import idle_sentence
from duesweep.report.quantities import count_text
from duesweep.sweep.stop import Stop

if TYPE_CHECKING:
    from duesweep.core.account import SweepReport

_SUMS = ("found", "dispatched", "failed", "exhausted", "left", "held")


@dataclass(frozen=True, slots=True)
class _Told:
    """What is told of one endpoint, in words and to monitoring."""

    source: str
    exit_code: ExitCode
    sentence: str
    document: dict[str, Any]
    is_error: bool = False
    report: "SweepReport | None" = None


def run(
    settings: Sequence[configuration.EndpointSettings],
    overrides: Sequence[str],
    stop: Stop,
    run_on_spark: Callable[[], int] | None,
    *,
    as_json: bool,
) -> End:
    """Sweep them all. `run_on_spark` is called, and ends this, if Spark is needed; None: this
    process starts it.
    """
    members, failures = members_of(settings, overrides)
    looked = look_at_all(members, stop)
    seen = [each for each in looked if isinstance(each, Looked)]
    if run_on_spark and any(each.is_for_spark for each in seen) and not stop.is_wanted:
        return End(run_on_spark())
    for each in seen:
        notices = [configuration.route_notice(each.member.config), *each.look.notices]
        for notice in filter(None, notices):
            print(make_printable(f"duesweep: {each.member.source}: {notice}"), file=sys.stderr)
    failures += [each for each in looked if isinstance(each, Failure)]
    done = [*sweep_all(seen, stop), *failures]
    told = sorted(map(_told, done), key=lambda told: told.sentence)
    _tell_monitoring(told, members)
    return _tell(told, as_json=as_json)


def _tell_monitoring(told: Sequence[_Told], members: Sequence[Member]) -> None:
    """Tell of the endpoints whose settings could be read."""
    known = {member.source: member for member in members}
    tell_of(
        [
            Ran(
                known[each.source].config,
                known[each.source].context.store,
                each.exit_code,
                *_ran(each),
            )
            for each in told
            if each.source in known
        ]
    )


def _ran(told: _Told) -> "tuple[float, SweepReport | None]":
    report = told.report
    return (0.0 if report is None else (report.end - report.start).total_seconds()), report


def _tell(told: Sequence[_Told], *, as_json: bool) -> End:
    code = worst([each.exit_code for each in told])
    sums = {name: sum(each.document[name] or 0 for each in told) for name in _SUMS}
    if as_json:
        documents_of_all = [each.document for each in told]
        total = {"endpoints": len(told), **sums}
        return End(code, {"total": total, "exit_code": int(code), "sources": documents_of_all})
    for each in told:
        out = sys.stderr if each.is_error else sys.stdout
        print(make_printable(f"{'duesweep: ' if each.is_error else ''}{each.sentence}"), file=out)
    bad = sum(each.exit_code is not ExitCode.DONE for each in told)
    endpoints = count_text(len(told), "endpoint")
    print(
        f"All {endpoints}: dispatched {sums['dispatched']:,} of {sums['found']:,} due messages, "
        f"{sums['failed']:,} failed, {sums['exhausted']:,} exhausted, {sums['left']:,} not "
        f"reached; {bad} with problems."
    )
    return End(code)


def _told(done: Swept | Failure) -> _Told:
    if isinstance(done, Failure):
        code = ExitCode(done.error.exit_code)
        is_idle = isinstance(done.error, NothingDueError)
        make = documents.unsettled_document if is_idle else documents.failed_document
        document = make(done.source, code, str(done.error))
        return _Told(done.source, code, f"{done.source}: {done.error}", document, is_error=True)
    source = done.member.source
    if done.report is None:
        return _idle(done, source)
    from duesweep.report import summary  # noqa: PLC0415 - where nothing is due it is not needed
    from duesweep.sweep.sweep import exit_code  # noqa: PLC0415

    report = done.report
    code = exit_code(report, is_late=done.is_late)
    held = held_in_sweep(done.look.pauses, report.breakers, report.over_limit)
    only_due = not done.member.context.look_ahead.longest_seconds
    sentence = summary.summary_sentence(report, only_due=only_due)
    reasons = [f" {each.count:,} failed: {each.reason}." for each in report.failures]
    error = f" {report.ledger_error}." if report.ledger_error else ""
    document = documents.end_document(summary.as_json(report), code, held)
    late = " Later than slo.lateness_seconds." if done.is_late else ""
    told = f"{source}: {sentence}{''.join(reasons)}{late}{error}"
    return _Told(source, code, told, document, report=report)


def _idle(done: Swept, source: str) -> _Told:
    look = done.look
    if look.has_work:
        text = f"{source}: the sweep was stopped before it began; the next sweep continues."
        return _Told(source, ExitCode.DONE, text, documents.unbegun_document(source))
    held = held_in_sweep(look.pauses, (), 0)
    document = documents.idle_document(source, look.next_due, held)
    return _Told(source, ExitCode.DONE, idle_sentence(source, look.next_due), document)
