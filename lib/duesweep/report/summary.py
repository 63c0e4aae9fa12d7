"""The summary of a sweep, as text and as JSON."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from duesweep.core.account import BreakerReport, SweepSummary
from duesweep.core.errors import make_printable, shorten
from duesweep.report.quantities import count_text, duration_text, size_text, time_text

_NOT_IN_TABLE = {
    *("source", "sweep_ids", "failures", "breakers"),
    *("lateness_p95_ms", "lateness_max_ms"),
}
# A median of 0 ms has a row with larger figures beside it.
_ALWAYS_IN_TABLE = {"found", "dispatched", "lateness_p50_ms"}


def as_json(summary: SweepSummary) -> dict[str, Any]:
    """The summary with the column names of the ledger's `sweeps`, and why messages failed. Times
    are in ISO 8601, all numbers are raw.
    """
    values = asdict(summary)
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in values.items()
    } | {"failures": list(values["failures"]), "breakers": list(values["breakers"])}


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
