"""Tells of a filter whose destination nothing is for."""

import sys
from typing import Any

from duesweep.core.errors import ConfigError, make_printable, shorten
from duesweep.core.routing import UnknownDestination
from duesweep.sweep.job import SweepContext
from duesweep.sweep.queues_check import find_missing_queues


def refuse_unknown(
    context: SweepContext, unknown: UnknownDestination | None, what: str, advice: str
) -> None:
    """Raise `ConfigError` for a name that neither `what` was chosen from nor a queue has: a typing
    error. A queue for which nothing is there (any more), and a pattern, may be meant: it is said.
    """
    if unknown is None:
        return
    name = unknown.pattern
    if "*" not in name and find_missing_queues(context, [name]):
        raise ConfigError(
            f"No {what} is for the destination {shorten(name)!r}, and it has no queue",
            advice=_similar(unknown) or advice,
        )
    print_unknown(unknown, what)


def print_unknown(unknown: UnknownDestination | None, what: str) -> None:
    """Say on stderr that no such thing is for the destination, and name similar ones."""
    if unknown is not None:
        similar = _similar(unknown)
        ending = f"; {similar}" if similar else ""
        text = f"duesweep: no {what} is for the destination {shorten(unknown.pattern)!r}{ending}"
        print(make_printable(text), file=sys.stderr)


def unknown_document(unknown: UnknownDestination | None) -> dict[str, Any] | None:
    """The same for JSON."""
    return None if unknown is None else unknown._asdict()


def _similar(unknown: UnknownDestination) -> str:
    names = " or ".join(map(repr, unknown.similar))
    return f"did you mean {names}?" if names else ""
