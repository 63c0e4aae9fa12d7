"""`duesweep rabbitmq delays migrate`: progress and result."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from duesweep.cli.queue_commands import Target
from duesweep.config.adapters import rabbitmq
from duesweep.config.adapters.rabbitmq import LevelReport, MigrationProgress, MigrationReport
from duesweep.core.errors import DuesweepError, ExitCode, make_printable

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
        with _progress_bar() as bar, _stop_on_signals() as stop:
            migration.run(report, _Progress(stop, bar))
    except DuesweepError:
        # Before the first level there is no result to print.
        if report.levels:
            _print(report, as_json=as_json)
        raise
    _print(report, as_json=as_json)
    if report.is_stopped:
        return ExitCode.WORK_LEFT
    return ExitCode.MESSAGES_FAILED if report.left or report.poison else ExitCode.DONE


class _Stop:
    """Whether a signal asked the migration to stop."""

    is_wanted = False


class _Progress(MigrationProgress):
    """Shows a bar for each level on a terminal; elsewhere nothing: `run` prints all levels."""

    def __init__(self, stop: _Stop, bar: Progress | None) -> None:
        self._stop = stop
        self._bar = bar
        self._tasks: dict[str, object] = {}

    @property
    def is_stopped(self) -> bool:
        """Whether the migration has to stop."""
        return self._stop.is_wanted

    def tell(self, level: LevelReport) -> None:
        """Show the progress of a level."""
        if self._bar is None or not level.waiting:
            return
        if level.queue not in self._tasks:
            self._tasks[level.queue] = self._bar.add_task(level.queue, total=level.waiting)
        task = self._tasks[level.queue]
        self._bar.update(task, completed=level.moved + level.poison)  # type: ignore[arg-type]


@contextmanager
def _progress_bar() -> Iterator[Progress | None]:
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        yield bar


@contextmanager
def _stop_on_signals() -> Iterator[_Stop]:
    """At the first signal, ask the migration to stop; the second signal has its usual effect.

    A message that the broker confirmed but that was not acknowledged would exist twice, so the
    first signal must not interrupt.
    """
    stop = _Stop()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in signals}

    def ask(number: int, _: FrameType | None) -> None:
        stop.is_wanted = True
        signal.signal(number, before[signal.Signals(number)])

    for number in signals:
        signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
