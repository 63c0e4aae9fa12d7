"""The statements by topic: a line like `-- name: claim` begins each.

Names are the same in every dialect.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

TOPICS = (
    "setup",
    "plan",
    "batch",
    "sweep",
    "command",
    "message",
    "queue",
    "doctor",
    "look",
    "held",
    "audit",
    "upkeep",
)
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def statement(dialect: str, name: str) -> str:
    """The text of a statement and the comment above it; `LookupError` for an unknown name."""
    known = statements(dialect)
    if name not in known:
        raise LookupError(f'unknown statement "{name}" in sql/{dialect}/')
    return known[name]


@cache
def statements(dialect: str) -> Mapping[str, str]:
    """The texts of all statements of `dialect` by their names."""
    return dict(each for topic in TOPICS for each in split_statements(read_topic(dialect, topic)))


def split_statements(text: str) -> list[tuple[str, str]]:
    """The names and texts of the statements in a file's `text`, in its order.

    What stands before the first name is for readers, and left out.
    """
    _, *parts = _NAME.split(text)
    return [
        (name, part.strip("\n") + "\n") for name, part in zip(parts[::2], parts[1::2], strict=True)
    ]


def read_topic(dialect: str, topic: str) -> str:
    """The text of `sql/<dialect>/<topic>.sql`; works from within an archive too."""
    return files(__name__).joinpath(dialect, f"{topic}.sql").read_text(encoding="utf-8")
