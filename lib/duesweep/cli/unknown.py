"""Tells of a filter whose destination nothing is for."""

import sys
from typing import Any

from duesweep.core.errors import make_printable, shorten
from duesweep.core.routing import UnknownDestination


def print_unknown(unknown: UnknownDestination | None, what: str) -> None:
    """Say on stderr that no such thing is for the destination, and name similar ones."""
    if unknown is not None:
        ending = f"; {unknown.similar_text}" if unknown.similar else ""
        text = f"duesweep: no {what} is for the destination {shorten(unknown.pattern)!r}{ending}"
        print(make_printable(text), file=sys.stderr)


def unknown_document(unknown: UnknownDestination | None) -> dict[str, Any] | None:
    """The same for JSON."""
    return None if unknown is None else unknown._asdict()
