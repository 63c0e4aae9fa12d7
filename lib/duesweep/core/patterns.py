"""What the patterns of commands and settings fit: `*` stands for any text, all else is itself.

Routes are the exception: their patterns are those of a shell (`core.routing`).
"""

import difflib
import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

# As PostgreSQL's addresses are written in full: "schema"."table".
_QUOTED_TABLE = re.compile(r'(?:"(?:[^"]|"")*"\.)?"((?:[^"]|"")*)"')
_MOST_SIMILAR = 3
# The pattern that fits all destinations, also those that cannot be read.
EVERYTHING = "*"


class UnknownDestination(NamedTuple):
    """A pattern that fits no destination that is there; `similar` are."""

    pattern: str
    similar: tuple[str, ...]


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
    the queue's name in it. So `Billing` fits `Billing@[dbo]@[shop]` and `"public"."Billing"`, too.
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
