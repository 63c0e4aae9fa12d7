"""The options by which commands choose waiting messages, and the filter that they mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer

from duesweep.core.change import DueSpan, MessageFilter
from duesweep.core.errors import ConfigError
from duesweep.core.times import Moment, parse_moment

# A scan of so many messages takes about half a minute.
DEFAULT_SCAN_LIMIT = 1_000_000

Destination = Annotated[
    str | None,
    typer.Option(metavar="PATTERN", help="The destination; * stands for any text."),
]
MessageType = Annotated[
    str | None,
    typer.Option("--type", metavar="PATTERN", help="The message type; * stands for any text."),
]
MessageIds = Annotated[
    list[str] | None,
    typer.Option("--message-id", metavar="ID", help="A message id; may be repeated."),
]
Keys = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="KEY", help="A key in the delayed table; may be repeated."),
]
SagaId = Annotated[
    str | None, typer.Option(metavar="ID", help="The saga that sent or requested the message.")
]
HeaderPatterns = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="NAME=PATTERN",
        help="A header's value; * stands for any text. May be repeated: then all have to fit.",
    ),
]
DueAfter = Annotated[
    Moment | None,
    typer.Option(
        parser=parse_moment,
        metavar="TIME",
        help="Due at this time or later, as in 2026-12-01T08:00:00Z, +2h or -1d.",
    ),
]
DueBefore = Annotated[
    Moment | None,
    typer.Option(parser=parse_moment, metavar="TIME", help="Due before this time."),
]
ScanLimit = Annotated[
    int,
    typer.Option(
        metavar="N", min=1, help="Look at N messages at most, where headers have to be read."
    ),
]


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """What was given of these options."""

    keys: Sequence[str] = ()
    message_ids: Sequence[str] = ()
    destination: str | None = None
    message_type: str | None = None
    saga_id: str | None = None
    headers: Sequence[str] = ()
    due_after: Moment | None = None
    due_before: Moment | None = None
    is_failing: bool = False

    def __post_init__(self) -> None:
        """Raises `ConfigError` for a header without a pattern: before anything is connected to."""
        self._named_patterns()

    def at(self, now: datetime) -> MessageFilter:
        """The filter, if it is `now` on the server. Raises `ConfigError` for an empty span."""
        return MessageFilter(
            keys=tuple(self.keys),
            message_ids=tuple(self.message_ids),
            destination=self.destination,
            message_type=self.message_type,
            saga_id=self.saga_id,
            headers=self._named_patterns(),
            due=self._span(now),
            is_failing=self.is_failing,
        )

    def _named_patterns(self) -> tuple[tuple[str, str], ...]:
        return tuple(map(_header, self.headers))

    def _span(self, now: datetime) -> DueSpan:
        start = None if self.due_after is None else self.due_after.at(now)
        end = None if self.due_before is None else self.due_before.at(now)
        if start is not None and end is not None and start >= end:
            raise ConfigError(
                f"No time is after {start.isoformat()} and before {end.isoformat()}",
                advice="exchange --due-after and --due-before",
            )
        return DueSpan(start, end)


def _header(text: str) -> tuple[str, str]:
    name, separator, pattern = text.partition("=")
    if not separator or not name:
        raise ConfigError(
            f"--header {text!r} is not of the form NAME=PATTERN",
            advice="write it as in --header Colour=bl*",
        )
    return name, pattern
