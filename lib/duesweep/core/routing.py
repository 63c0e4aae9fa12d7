"""To which destinations messages go: patterns of destinations, which are allowed at all, and the
route of each: its connection, and the queue's name there.

In the patterns of commands and settings `*` stands for any text, all else is itself. Routes are the
exception: they have the patterns of a shell.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from duesweep.core.errors import MessageError

# As PostgreSQL's addresses are written in full: "schema"."table".
_QUOTED_TABLE = re.compile(r'(?:"(?:[^"]|"")*"\.)?"((?:[^"]|"")*)"')
_MOST_SIMILAR = 3
# The pattern that fits all destinations, also unreadable ones.
EVERYTHING = "*"


class UnknownDestination(NamedTuple):
    """A pattern that fits no destination that is there; `similar` are."""

    pattern: str
    similar: tuple[str, ...]

    @property
    def similar_text(self) -> str:
        """The question whether one of them is meant; empty if none is similar."""
        names = " or ".join(map(repr, self.similar))
        return f"did you mean {names}?" if names else ""


def fits_pattern(text: str, pattern: str) -> bool:
    """Whether a pattern, in which `*` stands for any text, fits all of `text`."""
    literal = pattern.replace("[", "[[]").replace("?", "[?]")
    return fnmatchcase(text, literal)


def fits_any(pattern: str | None, texts: Iterable[str | None]) -> bool:
    """Whether a pattern fits one of the texts that are there. No pattern fits everything."""
    return pattern is None or any(
        text is not None and fits_pattern(text, pattern) for text in texts
    )


def fits_destination(address: str | None, pattern: str) -> bool:
    """Whether a pattern fits a destination: all of its address or, unless the pattern has an `@`,
    the queue's name in it. So `Billing` also fits `Billing@[dbo]@[shop]` and `"public"."Billing"`.
    None, which cannot be read, fits `EVERYTHING` only.
    """
    if address is None:
        return pattern == EVERYTHING
    return fits_pattern(address, pattern) or (
        "@" not in pattern and fits_pattern(_queue_name(address), pattern)
    )


def find_unknown(pattern: str | None, destinations: Collection[str]) -> UnknownDestination | None:
    """The pattern, if it fits none of these destinations; None: it fits one, or is not given."""
    if pattern is None or any(fits_destination(each, pattern) for each in destinations):
        return None
    spellings: dict[str, str] = {}
    for address in sorted(destinations):
        spellings[address.lower()] = address
        spellings.setdefault(_queue_name(address).lower(), address)
    near = difflib.get_close_matches(pattern.lower(), spellings, n=2 * _MOST_SIMILAR)
    similar = tuple(dict.fromkeys(spellings[each] for each in near))
    return UnknownDestination(pattern, similar[:_MOST_SIMILAR])


def _queue_name(address: str) -> str:
    quoted = _QUOTED_TABLE.fullmatch(address)
    return quoted[1].replace('""', '"') if quoted else address.partition("@")[0]


class DestinationNotAllowedError(MessageError):
    """The configuration does not allow the destination."""

    stored_name = "duesweep.core.allowed.DestinationNotAllowedError"


@dataclass(frozen=True, slots=True)
class Allowed:
    """Destinations that fit one of `patterns`, in which `*` stands for any text, and the error
    queue. The endpoint's own queue, which no address names, is always allowed.
    """

    patterns: tuple[str, ...] = ("*",)
    error_queue: str | None = None

    def check(self, address: str) -> None:
        """Raise `DestinationNotAllowedError` for an address that is not allowed."""
        if address == self.error_queue:
            return
        if not any(fits_destination(address, pattern) for pattern in self.patterns):
            raise DestinationNotAllowedError(
                f"sweep.allow_destinations does not allow the destination {address!r}; add it "
                "there if messages may go to it"
            )


PLACEHOLDERS = ("queue", "machine", "destination")
_WILDCARDS = re.compile(r"[*?[]")
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

    @property
    def only_queue(self) -> str | None:
        """The queue of all its messages; None: the queue depends on the destination."""
        if not _PLACEHOLDER.search(self.queue):
            return self.queue
        return None if _WILDCARDS.search(self.pattern) else self.name_of(self.pattern)

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
    """The first route that fits the destination; `NoRouteError` if none does."""
    for route in routes:
        if route.takes(destination):
            return route
    raise NoRouteError(f"No [[route]] takes the destination {destination!r}")
