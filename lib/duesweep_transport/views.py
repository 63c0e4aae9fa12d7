"""Messages, and a migration between delay ladders, as blocks; a bar for each of its levels."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from duesweep.core.message import ReceivedMessage
from duesweep.report.text import Block, Line

if TYPE_CHECKING:
    from duesweep_transport.migration import LevelReport, MigrationReport

_NOTHING = "Nothing to migrate: the broker has no ladder of the transport's first versions"


def received(message: ReceivedMessage) -> Iterator[Block]:
    """Its id, headers and body, and an empty line."""
    assert not isinstance(message.headers, Exception)
    yield Line(f"id: {message.id}")
    for name, value in message.headers.items():
        yield Line(f"{name}: {'' if value is None else value}")
    yield Line()
    body = "" if message.body is None else message.body.decode(errors="backslashreplace")
    yield from map(Line, body.split("\n"))
    yield Line()


def to_migrate(report: "MigrationReport") -> Iterator[Block]:
    """How many messages wait on each level."""
    for level in report.levels:
        if level.waiting:
            yield Line(f"{level.queue}: {level.waiting:,} waiting")
    total = f"{sum(level.waiting for level in report.levels):,} messages to migrate"
    yield Line(total if report.levels else _NOTHING)


def migrated(report: "MigrationReport") -> Iterator[Block]:
    """The moved messages, and the others."""
    for level in report.levels:
        if level.waiting or level.left or level.moved:
            yield Line(f"{level.queue}: {_counts(level)}")
    for reason, number in report.reasons.items():
        yield Line(f"{number:,} {reason}")
    if not report.levels:
        yield Line(_NOTHING)
        return
    yield Line(f"All levels: {_counts(report)}")
    if report.redelivered:
        yield Line(
            f"{report.redelivered:,} of them were delivered before, perhaps to a run that was "
            "interrupted: at most that many may exist twice"
        )
    if report.is_stopped:
        yield Line("Stopped; run the command again to move the rest")


def _counts(one: "LevelReport | MigrationReport") -> str:
    return f"{one.moved:,} moved, {one.poison:,} poison, {one.left:,} left"


@contextmanager
def level_bars() -> "Iterator[Callable[[LevelReport], None]]":
    """What shows a bar for each level of a migration, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    # They take a tenth of a second to load.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True)) as bar:

        def tell(level: "LevelReport") -> None:
            if level.waiting:
                if level.queue not in tasks:
                    tasks[level.queue] = bar.add_task(level.queue, total=level.waiting)
                bar.update(tasks[level.queue], completed=level.moved + level.poison)

        yield tell
