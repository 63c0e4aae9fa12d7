"""Messages, and a migration between delay ladders, as blocks."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from duesweep.report.text import Block, Line
from duesweep_transport.values import ReceivedMessage

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
