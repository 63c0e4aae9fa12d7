"""The statements by topic: a line like `-- name: claim` begins each.

Names are the same in every dialect. What several statements of a dialect repeat is a fragment. A
line like `-- fragment: tick` begins it, and `{{tick: @due}}` stands for it; `$1`, `$2` … in it are
what follows the colon, separated by semicolons. Lines before `}}` are the last of them, as what a
frame is put around:

    {{under_lock: queue; changing
        ALTER TABLE …
    }}

What Spark reads over JDBC is a subquery that can bind no values: they are literals in braces.
"""

import re
from collections.abc import Mapping
from functools import cache, partial
from importlib.resources import files
from textwrap import dedent

TOPICS = ("setup", "plan", "batch", "sweep", "queue", "operators")
_MARK = re.compile(r"^-- (name|fragment): (\w+)\n", re.MULTILINE)
# Those within others first: what is in the braces has none.
_USE = re.compile(r"\{\{(\w+)(?:: ((?:(?!\{\{).)*?))? *(?:\n((?:(?!\{\{)[\s\S])*?)\n *)?\}\}(?!\})")
_ARGUMENT = re.compile(r"\$(\d)")
_HEAD = re.compile(r"\A(?:--.*\n)*")


def statement(dialect: str, name: str) -> str:
    """The text of a statement and the comment above it; `LookupError` for an unknown name."""
    known = statements(dialect)
    if name not in known:
        raise LookupError(f'unknown statement "{name}" in sql/{dialect}/')
    return known[name]


@cache
def statements(dialect: str) -> Mapping[str, str]:
    """The texts of all statements of `dialect` by their names."""
    return read_statements(*(read_topic(dialect, topic) for topic in TOPICS))


def read_statements(*texts: str) -> Mapping[str, str]:
    """The statements in the texts of files by their names, with the fragments that they use.

    What stands before the first mark in a text is for readers, and left out; so are the comments
    at the head of a fragment.
    """
    marked: dict[str, dict[str, str]] = {"name": {}, "fragment": {}}
    for text in texts:
        _, *parts = _MARK.split(text)
        for kind, name, part in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            marked[kind][name] = part.strip("\n")
    fragments = {name: _HEAD.sub("", text) for name, text in marked["fragment"].items()}
    return {name: _expanded(text, fragments) + "\n" for name, text in marked["name"].items()}


def _expanded(text: str, fragments: Mapping[str, str]) -> str:
    count = 1
    while count:
        text, count = _USE.subn(partial(_fragment, fragments), text)
    return text


def _fragment(fragments: Mapping[str, str], use: re.Match[str]) -> str:
    name, listed, block = use.groups()
    arguments = [*(listed.split("; ") if listed else []), *([dedent(block)] if block else [])]
    taken = set(_ARGUMENT.findall(fragments[name]))
    if len(taken) != len(arguments):
        raise ValueError(f"fragment {name} takes {len(taken)} texts, not {arguments}")
    text = _ARGUMENT.sub(lambda at: _at_margin(arguments[int(at[1]) - 1], at), fragments[name])
    return _at_margin(text, use)


def _at_margin(text: str, place: re.Match[str]) -> str:
    """`text` for this place, with its lines from the second on as far to the right as the line
    in which the place is.
    """
    line = place.string[place.string.rfind("\n", 0, place.start()) + 1 : place.start()]
    margin = line[: len(line) - len(line.lstrip(" "))]
    return text.replace("\n", f"\n{margin}")


def read_topic(dialect: str, topic: str) -> str:
    """The text of `sql/<dialect>/<topic>.sql`; works from within an archive too."""
    return files(__name__).joinpath(dialect, f"{topic}.sql").read_text(encoding="utf-8")
