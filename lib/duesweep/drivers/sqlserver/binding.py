"""From a statement's file and values to text and parameters, as ODBC takes them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from duesweep.sql import statement

Names = Mapping[str, str]

# A variable of the statement's own begins with a capital letter (@Now), a value's with a small one.
_VALUE = re.compile(r"(?<![@\w])@([a-z]\w*)")
_COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)
# What the driver gathers of a group of rows before it sends them: rows times the longest.
_GATHERED_BYTES = 16_000_000


def key_list(keys: Iterable[str]) -> tuple[str | None, str]:
    """Keys as one text for STRING_SPLIT, None for no keys, and what separates them in it: a
    control character that none of them holds.
    """
    listed = list(keys)
    separator = next(c for c in map(chr, range(31, -1, -1)) if not any(c in k for k in listed))
    return (separator.join(listed) if listed else None), separator


def literal(value: str) -> str:
    """`value` as an SQL literal, for the queries that Spark runs over JDBC."""
    return "N'" + value.replace("'", "''") + "'"


def groups(
    rows: Sequence[tuple[str, bytes | None]],
) -> Iterator[Sequence[tuple[str, bytes | None]]]:
    """`rows` in groups whose longest row, times their number, is what may be gathered."""
    start, longest = 0, 0
    for index, (headers, body) in enumerate(rows):
        length = 2 * len(headers) + len(body or b"")
        grown = max(longest, length)
        if index > start and grown * (index - start + 1) > _GATHERED_BYTES:
            yield rows[start:index]
            start, grown = index, length
        longest = grown
    if start < len(rows):
        yield rows[start:]


def bound(name: str, names: Names, values: Mapping[str, object]) -> tuple[str, list[object]]:
    """The text of the named statement, and its parameters in their order."""
    text, order = text_of(name, tuple(sorted(values)))
    return text.format(**names), [values[value] for value in order]


@cache
def text_of(name: str, values: tuple[str, ...]) -> tuple[str, list[str]]:
    """The named statement with a marker for each value, and the values' order."""
    text = _COMMENT.sub("", statement("sqlserver", name))
    order = [found[1] for found in _VALUE.finditer(text)]
    if set(order) != set(values):
        raise ValueError(f"{name} takes {sorted(set(order))}, not {list(values)}")
    return _VALUE.sub("?", text), order
