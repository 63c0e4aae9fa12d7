"""Finds where a destination's messages go: the connection, and the queue's name there."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from duesweep.core.errors import MessageError

PLACEHOLDERS = ("queue", "machine", "destination")
_PLACEHOLDER = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")


class NoRouteError(MessageError):
    """No route takes the destination."""

    stored_name = "duesweep.core.routing.NoRouteError"


@dataclass(frozen=True, slots=True)
class Route:
    """Messages for destinations that fit `pattern` go to `queue` on `connection`.

    `pattern` uses a shell's wildcards: `*`, `?`, `[ab]`; `[[]` matches a bracket. In `queue`,
    `{destination}` is the whole destination, `{queue}` the text before its first `@`, `{machine}`
    the text after it.
    """

    pattern: str
    connection: str
    queue: str

    def takes(self, destination: str) -> bool:
        """Whether the destination fits; upper and lower case differ."""
        return fnmatchcase(destination, self.pattern)

    def name_of(self, destination: str) -> str:
        """The queue's address on the connection."""
        queue, _, machine = destination.partition("@")
        parts = {"queue": queue, "machine": machine, "destination": destination}
        return _PLACEHOLDER.sub(lambda found: parts[found[1]], self.queue)


def own_route(routes: Sequence[Route], names: Sequence[str]) -> tuple[Route, str]:
    """The route of the endpoint's own queue, and the name that the route takes.

    `names` are the endpoint's name and its queue's whole address; the first one that a route takes
    counts. Raises `NoRouteError` if no route takes any.
    """
    for name in names:
        for route in routes:
            if route.takes(name):
                return route, name
    raise NoRouteError(f"No [[route]] takes the endpoint's own queue, {' or '.join(names)}")


def first_route(routes: Sequence[Route], destination: str) -> Route:
    """The first route that takes the destination; `NoRouteError` where none does."""
    for route in routes:
        if route.takes(destination):
            return route
    raise NoRouteError(f"No [[route]] takes the destination {destination!r}")
