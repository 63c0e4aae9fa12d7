"""Where a destination's messages go: which queue connection, and what the queue is called there."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from duesweep.errors import MessageError

PLACEHOLDERS = ("queue", "machine", "destination")
_PLACEHOLDER = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")


class NoRouteError(MessageError):
    """No route takes the destination."""


@dataclass(frozen=True, slots=True)
class Route:
    """Destinations that fit `pattern` go to `queue` on `connection`.

    `pattern` is a shell's: `*`, `?`, `[ab]`; `[[]` is a bracket itself. In `queue`, `{destination}`
    stands for the whole destination, `{queue}` for what comes before its first `@`, `{machine}` for
    what comes after.
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
    """The route of the endpoint's own queue, and the name that it takes: the first of `names`, the
    endpoint's and its queue's whole address, that a route fits. `NoRouteError` where none does.
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
