"""What a sweep prints: progress on a terminal, a summary as text or JSON, logs on stderr."""

import logging
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import structlog
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from duesweep.cli.quantities import count_text, duration_text, size_text, time_text
from duesweep.errors import StoreError
from duesweep.preview import PreviewEntry
from duesweep.stores.base import Store
from duesweep.stores.journal import SweepSummary
from duesweep.stores.values import SweepRun
from duesweep.sweep import Watch

_POLL_SECONDS = 0.5


def configure_logging() -> None:
    """Log JSON lines to stderr: stdout is for the summary."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def progress(store: Store) -> Watch | None:
    """Show batches, rows and rows/s while a sweep dispatches; None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        return None

    def watch(run: SweepRun, found: int) -> AbstractContextManager[object]:
        return _progress_bar(store, run, found)

    return watch


@contextmanager
def _progress_bar(store: Store, run: SweepRun, found: int) -> Iterator[None]:
    done = threading.Event()
    bar = Progress(
        TextColumn("sweeping"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[batches]} batches, {task.fields[rate]:,.0f} rows/s"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
    task = bar.add_task("sweep", total=found, batches=0, rate=0.0)

    def poll() -> None:
        try:
            with store.open_driver() as session:
                while not done.wait(_POLL_SECONDS):
                    batches, rows = session.progress(run.sweep_id)
                    elapsed = bar.tasks[0].elapsed or _POLL_SECONDS
                    bar.update(task, completed=rows, batches=batches, rate=rows / elapsed)
        except StoreError:
            return  # only the display ends: the sweep itself reports the error

    watcher = threading.Thread(target=poll, daemon=True)
    with bar:
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def as_json(summary: SweepSummary) -> dict[str, Any]:
    """The summary with the column names of the ledger's `sweeps`, and why messages failed. Times
    are in ISO 8601, all numbers are raw.
    """
    values = asdict(summary)
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in values.items()
    } | {"failures": list(values["failures"])}


def print_summary(summary: SweepSummary, *, only_due: bool = True) -> None:
    """The summary on stdout: a sentence, a table, and why messages failed.

    `only_due`: the sweep did not look ahead, so all that it found was due.
    """
    print(summary_sentence(summary, only_due=only_due))
    table = Table(title=f"Sweep of {summary.source}", show_header=False, title_justify="left")
    for name, text in _rows(summary):
        table.add_row(name, text)
    Console().print(table)
    if summary.failures:
        print("Why messages failed, most frequent reasons first:")
    for failure in summary.failures:
        messages = count_text(failure.count, "message")
        example = "" if failure.destination is None else f", for example to {failure.destination}"
        print(f"  {messages}{example}: {failure.reason}")


def summary_sentence(summary: SweepSummary, *, only_due: bool) -> str:
    """What the sweep did, in a sentence; `print_summary` prints it first."""
    noun = "due message" if only_due else "message"
    took = duration_text((summary.end - summary.start) / timedelta(milliseconds=1))
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
            (summary.left, "not reached"),
        )
        if count
    ]
    ending = "" if summary.outcome in {"done", "failures"} else f" The sweep is {summary.outcome}."
    return "; ".join([done, ", ".join(rest)] if rest else [done]) + "." + ending


def _rows(summary: SweepSummary) -> Iterator[tuple[str, str]]:
    """The rows of the table: the summary's own names, without what has a unit of its own."""
    for name, value in asdict(summary).items():
        if value is None or name in {"source", "failures", "lateness_p95_ms", "lateness_max_ms"}:
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


def print_preview(found: Counter[PreviewEntry], own_queue: str) -> None:
    """Where messages would go, as a table on stdout."""
    table = Table("destination", "where to", Column("messages", justify="right"))
    for entry, messages in sorted(found.items(), key=lambda item: _order(*item)):
        place = "at once" if entry.level is None else f"delay level {entry.level:02}"
        destination = entry.destination or own_queue
        table.add_row(
            destination, f"stays: {entry.problem}" if entry.problem else place, f"{messages:,}"
        )
    table.add_row("", "all", f"{found.total():,}")
    Console().print(table)


def _order(entry: PreviewEntry, _: int) -> tuple[bool, str, int, str]:
    level = -1 if entry.level is None else entry.level
    return (entry.problem is not None, entry.destination or "", level, entry.problem or "")
