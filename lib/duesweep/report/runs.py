"""What came of runs of `sweep`, as text and as JSON."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from typing import Any

from duesweep.core.account import BreakerReport, SweepReport, SweepSummary
from duesweep.core.errors import ExitCode, make_printable, shorten
from duesweep.operations.look import NextDue
from duesweep.operations.run import Run
from duesweep.report.held import held_document, print_held
from duesweep.report.quantities import count_text, duration_text, size_text, time_text
from duesweep.sweep.job import SweepContext

_NOT_IN_TABLE = {
    *("source", "sweep_ids", "failures", "breakers"),
    *("lateness_p95_ms", "lateness_max_ms"),
}
# A median of 0 ms has a row with larger figures beside it.
_ALWAYS_IN_TABLE = {"found", "dispatched", "lateness_p50_ms"}


_LISTS = ("failures", "breakers", "sweep_ids")
_SUMS = ("found", "dispatched", "failed", "exhausted", "left", "held")


def document(run: Run) -> dict[str, Any]:
    """A run for JSON: with the column names of the ledger's `sweeps`, why messages failed, and what
    held others back. Times are in ISO 8601, all numbers are raw; those of a run that an error ended
    are null, as nobody knows here what the sweep did before it. All runs have the same names.
    """
    next_due = None if run.next_due is None else run.next_due.instant.isoformat()
    told = {
        "source": run.source,
        "outcome": run.outcome,
        "ledger_error": run.ledger_error,
    }
    ending = {
        "held_back": [held_document(one) for one in run.held_back],
        "next_due": next_due,
        "exit_code": run.exit_code,
        "error": run.error,
    }
    if run.report is not None:
        return as_json(run.report) | told | ending
    nothing = {
        field.name: 0 if field.type is int and not run.is_lost else None
        for field in fields(SweepReport)
    }
    return nothing | {name: [] for name in _LISTS} | told | ending


def as_json(summary: SweepSummary) -> dict[str, Any]:
    """The same of a sweep alone."""
    values = asdict(summary)
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in values.items()
    } | {"failures": list(values["failures"]), "breakers": list(values["breakers"])}


def fleet_document(runs: Sequence[Run], exit_code: int) -> dict[str, Any]:
    """The runs of several endpoints, with the sums of all."""
    total = {"endpoints": len(runs), **_sums(runs)}
    return {
        "total": total,
        "exit_code": int(exit_code),
        "sources": [document(run) for run in runs],
    }


def fleet_sentence(runs: Sequence[Run]) -> str:
    """The sums of the runs of several endpoints."""
    sums = _sums(runs)
    bad = sum(run.exit_code != ExitCode.DONE for run in runs)
    return (
        f"All {count_text(len(runs), 'endpoint')}: dispatched {sums['dispatched']:,} of "
        f"{sums['found']:,} due messages, {sums['failed']:,} failed, {sums['exhausted']:,} "
        f"exhausted, {sums['left']:,} not reached; {bad} with problems."
    )


def _sums(runs: Sequence[Run]) -> dict[str, int]:
    reports = [run.report for run in runs if run.report is not None]
    return {name: sum(getattr(report, name) for report in reports) for name in _SUMS}


def run_sentence(run: Run, *, only_due: bool = True) -> str:
    """What came of a run of one of several endpoints, in a line."""
    report = run.report
    if report is None:
        if run.error is not None:
            return f"{run.source}: {run.error}"
        return (
            _stopped(run) if run.outcome == "stopped" else idle_sentence(run.source, run.next_due)
        )
    sentence = summary_sentence(report, only_due=only_due)
    reasons = [f" {each.count:,} failed: {each.reason}." for each in report.failures]
    late = " Later than slo.lateness_seconds." if run.is_late else ""
    error = f" {report.ledger_error}." if report.ledger_error else ""
    return f"{run.source}: {sentence}{''.join(reasons)}{late}{error}"


def _stopped(run: Run) -> str:
    return f"{run.source}: the sweep was stopped before it began; the next sweep continues."


def idle_sentence(source: str, next_due: NextDue | None) -> str:
    """When the next message comes due; without a time if there is none, or if the store cannot
    tell.
    """
    idle = f"{source}: nothing is to be sent now, and nothing is left to settle"
    if next_due is None:
        return f"{idle}."
    wait_ms = max(0.0, (next_due.instant - next_due.now) / timedelta(milliseconds=1))
    return (
        f"{idle}; the next message is due in {duration_text(wait_ms)}, "
        f"at {time_text(next_due.instant)}."
    )


def print_run(run: Run, *, only_due: bool = True) -> None:
    """A run on stdout, but for what `warnings` say."""
    if run.report is not None:
        print_summary(run.report, only_due=only_due)
    elif run.outcome == "stopped":
        print(make_printable(_stopped(run)))
    elif run.error is None:
        print(make_printable(idle_sentence(run.source, run.next_due)))
    else:
        return
    print_held(run.held_back)


def warnings(run: Run, context: SweepContext) -> Iterator[str]:
    """What somebody should look at after a run that did not end with an error, with what to do."""
    if run.is_late:
        yield (
            f"a message was dispatched later than {context.objective_seconds:g} s after its Due, "
            "the objective slo.lateness_seconds; sweep more often, or see whether the sweeps "
            "before this one ended well"
        )
    kept = kept_warning(run, context)
    if kept is not None:
        yield kept
    if run.ledger_error is not None:
        yield run.ledger_error


def kept_warning(run: Run, context: SweepContext) -> str | None:
    """That messages out of attempts are still in the store; None: none are."""
    if run.report is None or not run.report.over_limit:
        return None
    return (
        f"{count_text(run.report.over_limit, 'message')} out of attempts, but kept in the "
        f"store: a sweep gives up {context.max_exhausted:,} at most; if a setting is wrong, "
        "correct it now; if not, the next sweeps give them up, or raise "
        "retry.max_exhausted_per_sweep"
    )


def print_summary(summary: SweepSummary, *, only_due: bool = True) -> None:
    """The summary on stdout: a sentence, a table, and why messages failed. On a terminal the table
    has no rows that are 0, except for the messages found and dispatched.

    `only_due`: the sweep did not look ahead, so all that it found was due.
    """
    print(summary_sentence(summary, only_due=only_due))
    print(make_printable(f"Sweep of {summary.source}"))
    rows = list(_rows(summary, has_zeros=not sys.stdout.isatty()))
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        print(make_printable(f"  {name:<{width}}  {text}"))
    if summary.failures:
        print("Why messages failed, most frequent reasons first:")
    for failure in summary.failures:
        messages = count_text(failure.count, "message")
        destination = failure.destination
        example = "" if destination is None else f", for example to {shorten(destination)}"
        print(make_printable(f"  {messages}{example}: {failure.reason}"))
    if summary.failed:
        print("`duesweep list --failing` shows each of them, and when it is tried again.")
    if summary.breakers:
        print("What took nothing for some time:")
    for breaker in summary.breakers:
        print(make_printable(f"  {breaker_sentence(breaker)}"))


def breaker_sentence(breaker: BreakerReport) -> str:
    """What a circuit breaker did in a sweep, in a line."""
    seconds = duration_text(breaker.seconds * 1_000)
    since = time_text(datetime.fromisoformat(breaker.since))
    left = f", {count_text(breaker.left, 'message')} left" if breaker.left else ""
    head = f"{shorten(breaker.name)}: {breaker.state}{left}"
    return f"{head}; took nothing from {since} on, for {seconds}: {breaker.reason}"


def summary_sentence(summary: SweepSummary, *, only_due: bool) -> str:
    """What the sweep did, in a sentence; `print_summary` prints it first."""
    noun = "due message" if only_due else "message"
    took = duration_text((summary.end - summary.start) / timedelta(milliseconds=1))
    if not summary.found and summary.outcome == "stopped":
        return f"The sweep was stopped before it looked for {noun}s; the next sweep continues."
    if not summary.found:
        done = f"Found no {noun}s in {took}"
    else:
        found = count_text(summary.found, noun)
        done = f"Dispatched {summary.dispatched:,} of {found} in {took}"
    rest = [
        f"{count:,} {what}"
        for count, what in (
            (summary.failed, "failed (still in the store)"),
            (summary.exhausted, "exhausted (in the ledger's `errors`)"),
            (summary.skipped, "skipped (locked by others)"),
            (summary.gone, "taken or removed by others"),
            (summary.eligible_later, "no longer eligible"),
            (summary.held, "held back (their destination is paused)"),
            (summary.left, "not reached"),
        )
        if count
    ]
    ending = "" if summary.outcome in {"done", "failures"} else f" The sweep is {summary.outcome}."
    return "; ".join([done, ", ".join(rest)] if rest else [done]) + "." + ending


def _rows(summary: SweepSummary, *, has_zeros: bool) -> Iterator[tuple[str, str]]:
    """The rows of the table: the summary's own names, without what has a unit of its own."""
    for name, value in asdict(summary).items():
        if value is None or name in _NOT_IN_TABLE:
            continue
        if value == 0 and not has_zeros and name not in _ALWAYS_IN_TABLE:
            continue
        match name:
            case "bytes":
                yield "bodies", size_text(value)
            case "rows_per_second":
                yield "rate", f"{value:,.0f} rows/s"
            case "lateness_p50_ms":
                yield "lateness", _lateness(summary)
            case _:
                yield name.replace("_", " "), _text_of(value)


def _lateness(summary: SweepSummary) -> str:
    figures = {
        "p50": summary.lateness_p50_ms,
        "p95": summary.lateness_p95_ms,
        "max": summary.lateness_max_ms,
    }
    known = {name: ms for name, ms in figures.items() if ms is not None}
    return ", ".join(f"{duration_text(ms)} ({name})" for name, ms in known.items())


def _text_of(value: object) -> str:
    if isinstance(value, datetime):
        return time_text(value)
    return f"{value:,}" if isinstance(value, int) else str(value)
