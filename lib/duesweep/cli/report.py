"""What a sweep shows: progress on a terminal, a table or JSON at the end, logs on stderr."""

import logging
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Any

import structlog
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from duesweep.errors import StoreError
from duesweep.preview import PreviewEntry
from duesweep.stores.base import Store
from duesweep.stores.values import SweepRun, SweepSummary
from duesweep.sweep import Watch

_POLL_SECONDS = 0.5


def configure_logging() -> None:
    """JSON lines on stderr: stdout belongs to the summary."""
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
    """Batches, rows and rows/s while a sweep dispatches; None where stderr is no terminal."""
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
            return  # only a display: the sweep itself will say what is wrong

    watcher = threading.Thread(target=poll, daemon=True)
    with bar:
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def as_json(summary: SweepSummary) -> dict[str, Any]:
    """The summary under the names of the ledger's `sweeps`, and why messages failed; times in ISO
    8601.
    """
    values = asdict(summary)
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in values.items()
    } | {"failures": list(values["failures"])}


def print_summary(summary: SweepSummary) -> None:
    """The summary as a table on stdout, and why messages failed."""
    table = Table(title=f"Sweep of {summary.source}", show_header=False, title_justify="left")
    for name, value in asdict(summary).items():
        if value is not None and name not in {"source", "failures"}:
            table.add_row(name, _shown(value))
    Console().print(table)
    if summary.failures:
        print("Why messages failed, the commonest reasons:")
    for failure in summary.failures:
        messages = "1 message" if failure.count == 1 else f"{failure.count:,} messages"
        example = "" if failure.destination is None else f", as for {failure.destination}"
        print(f"  {messages}{example}: {failure.reason}")


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


def _shown(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    return f"{value:,}" if isinstance(value, int | float) else str(value)
