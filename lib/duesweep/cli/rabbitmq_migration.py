"""`duesweep rabbitmq delays migrate`: progress, and what came of it."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from duesweep.cli.queue_commands import At
from duesweep.errors import DuesweepError, ExitCode
from duesweep.wiring import rabbitmq_tools
from duesweep.wiring.rabbitmq_tools import LevelReport, MigrationReport

__all__ = ["At", "count", "run"]

_NOTHING = "There is nothing to migrate: the broker has no ladder of the transport's first versions"


def count(at: At) -> ExitCode:
    """Say how many messages wait on each level."""
    report = rabbitmq_tools.migration(at.config(), at.connection).count()
    for level in report.levels:
        if level.waiting:
            print(f"{level.queue}: {level.waiting:,} wait")
    if report.levels:
        print(f"{sum(level.waiting for level in report.levels):,} messages to migrate")
    else:
        print(_NOTHING)
    return ExitCode.DONE


def run(at: At, *, as_json: bool) -> ExitCode:
    """Move them, and say what came of it; also where it ends in an error."""
    migration = rabbitmq_tools.migration(at.config(), at.connection)
    report = MigrationReport()
    try:
        with _shown() as bar, _stopped_by_signals() as stop:
            migration.run(report, _Progress(stop, bar))
    except DuesweepError:
        # Before the first level there is nothing to say but the error.
        if report.levels:
            _print(report, as_json=as_json)
        raise
    _print(report, as_json=as_json)
    if report.is_stopped:
        return ExitCode.WORK_LEFT
    return ExitCode.MESSAGES_FAILED if report.left or report.poison else ExitCode.DONE


class _Stop:
    """Whether somebody wants it to end."""

    is_wanted = False


class _Progress:
    """A bar a level on a terminal; without one nothing, as `run` prints levels in the end."""

    def __init__(self, stop: _Stop, bar: Progress | None) -> None:
        self._stop = stop
        self._bar = bar
        self._tasks: dict[str, object] = {}

    @property
    def is_stopped(self) -> bool:
        """Whether to end soon."""
        return self._stop.is_wanted

    def tell(self, level: LevelReport) -> None:
        """Show how far a level is."""
        if self._bar is None or not level.waiting:
            return
        if level.queue not in self._tasks:
            self._tasks[level.queue] = self._bar.add_task(level.queue, total=level.waiting)
        task = self._tasks[level.queue]
        self._bar.update(task, completed=level.moved + level.poison)  # type: ignore[arg-type]


@contextmanager
def _shown() -> Iterator[Progress | None]:
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
def _stopped_by_signals() -> Iterator[_Stop]:
    """What is confirmed must be acknowledged, or it would be there twice: the first signal only
    asks. A second one ends it as usual.
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
        print(f"{number:,} {reason}")
    if not report.levels:
        print(_NOTHING)
        return
    print(f"All levels: {_counts(report)}")
    if report.redelivered:
        print(
            f"{report.redelivered:,} of them had been handed out before, to a run that was "
            "interrupted perhaps: so many, at the most, may be there twice"
        )
    if report.is_stopped:
        print("Stopped; run it again for the rest")


def _counts(one: LevelReport | MigrationReport) -> str:
    return f"{one.moved:,} moved, {one.poison:,} poison, {one.left:,} left"


def _json(report: MigrationReport) -> str:
    names = ("moved", "poison", "left", "redelivered", "is_stopped", "reasons")
    document = {name: getattr(report, name) for name in names}
    return json.dumps(
        {**document, "levels": [asdict(level) for level in report.levels]}, ensure_ascii=False
    )
