"""`duesweep rabbitmq delays migrate`: progress and result."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from duesweep.cli.queue_commands import Target
from duesweep.cli.signals import DONE_STAYS_DONE, stop_on_signals
from duesweep.config.adapters import rabbitmq
from duesweep.config.adapters.rabbitmq import LevelReport, MigrationReport
from duesweep.core.errors import DuesweepError, ExitCode, make_printable
from duesweep.sweep.stop import Stop

__all__ = ["Target", "count", "run"]

_NOTHING = "There is nothing to migrate: the broker has no ladder of the transport's first versions"


def count(target: Target, *, as_json: bool) -> ExitCode:
    """Print how many messages wait on each level."""
    report = rabbitmq.migration(target.config(), target.connection).count()
    if as_json:
        levels = [{"queue": level.queue, "waiting": level.waiting} for level in report.levels]
        total = sum(level.waiting for level in report.levels)
        print(json.dumps({"waiting": total, "levels": levels}))
        return ExitCode.DONE
    for level in report.levels:
        if level.waiting:
            print(f"{level.queue}: {level.waiting:,} waiting")
    if report.levels:
        print(f"{sum(level.waiting for level in report.levels):,} messages to migrate")
    else:
        print(_NOTHING)
    return ExitCode.DONE


def run(target: Target, *, as_json: bool) -> ExitCode:
    """Move the messages and print the result, also after an error."""
    migration = rabbitmq.migration(target.config(), target.connection)
    report = MigrationReport()
    try:
        with _progress_bar() as tell, stop_on_signals(stop := Stop(), DONE_STAYS_DONE):
            migration.run(report, lambda: stop.is_wanted, tell)
    except DuesweepError:
        # Before the first level there is no result to print.
        if report.levels:
            _print(report, as_json=as_json)
        raise
    _print(report, as_json=as_json)
    if report.is_stopped:
        return ExitCode.WORK_LEFT
    return ExitCode.MESSAGES_FAILED if report.left or report.poison else ExitCode.DONE


@contextmanager
def _progress_bar() -> Iterator[Callable[[LevelReport], None]]:
    """Shows a bar for each level on a terminal; elsewhere nothing: `run` prints all levels."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True)) as bar:

        def tell(level: LevelReport) -> None:
            if level.waiting:
                if level.queue not in tasks:
                    tasks[level.queue] = bar.add_task(level.queue, total=level.waiting)
                bar.update(tasks[level.queue], completed=level.moved + level.poison)

        yield tell


def _print(report: MigrationReport, *, as_json: bool) -> None:
    if as_json:
        print(_json(report))
    else:
        _print_lines(report)


def _print_lines(report: MigrationReport) -> None:
    for level in report.levels:
        if level.waiting or level.left or level.moved:
            print(f"{level.queue}: {_counts(level)}")
    for reason, number in report.reasons.items():
        print(make_printable(f"{number:,} {reason}"))
    if not report.levels:
        print(_NOTHING)
        return
    print(f"All levels: {_counts(report)}")
    if report.redelivered:
        print(
            f"{report.redelivered:,} of them were delivered before, perhaps to a run that was "
            "interrupted: at most that many may exist twice"
        )
    if report.is_stopped:
        print("Stopped; run the command again to move the rest")


def _counts(one: LevelReport | MigrationReport) -> str:
    return f"{one.moved:,} moved, {one.poison:,} poison, {one.left:,} left"


def _json(report: MigrationReport) -> str:
    names = ("moved", "poison", "left", "redelivered", "is_stopped", "reasons")
    document = {name: getattr(report, name) for name in names}
    return json.dumps({**document, "levels": [asdict(level) for level in report.levels]})
