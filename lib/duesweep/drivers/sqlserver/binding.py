"""Turns a named statement and its values into text and parameters for ODBC."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from duesweep.drivers.sqlserver.names import quoted
from duesweep.errors import StoreError
from duesweep.sql import statement

Names = Mapping[str, str]

_SIGNS = ",;|~^!#$%&*+=?@_/:<>{}[]()"

# A statement's own variables begin with a capital letter (@Now), values with a small one.
_VALUE = re.compile(r"(?<![@\w])@([a-z]\w*)")
_COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)
# The driver's buffer for one group of rows: the number of rows times the longest row.
_GATHERED_BYTES = 16_000_000


def key_list(keys: Iterable[str]) -> tuple[str | None, str]:
    """Keys as one text for STRING_SPLIT, None for no keys; and the separator in that text.

    The separator is a sign that no key holds, not even as a character that a collation treats as
    equal. It is not a control character, since collations ignore those. The text is not JSON, since
    some servers do not read its escapes.
    """
    listed = list(keys)
    text = unicodedata.normalize("NFKC", "".join(listed))
    separator = next((sign for sign in _SIGNS if sign not in text), None)
    if separator is None:
        raise StoreError(f"Keys hold all of the signs {_SIGNS}: {listed}", transient=False)
    return (separator.join(listed) if listed else None), separator


def literal(value: str) -> str:
    """`value` as an SQL literal, for the queries that Spark runs over JDBC."""
    return f"N'{quoted(value)}'"


def group_rows(
    rows: Sequence[tuple[str, bytes | None]],
) -> Iterator[tuple[int, Sequence[tuple[str, bytes | None]]]]:
    """`rows` in groups that fit into the driver's buffer, each with the index of its first row."""
    start, longest = 0, 0
    for index, (headers, body) in enumerate(rows):
        length = 2 * len(headers) + len(body or b"")
        grown = max(longest, length)
        if index > start and grown * (index - start + 1) > _GATHERED_BYTES:
            yield start, rows[start:index]
            start, grown = index, length
        longest = grown
    if start < len(rows):
        yield start, rows[start:]


def bind(name: str, names: Names, values: Mapping[str, object]) -> tuple[str, list[object]]:
    """The text of the named statement, and its parameters in their order."""
    text, order = text_of(name, tuple(sorted(values)))
    return text.format(**names), [values[value] for value in order]


def describe_statement(name: str, names: Names) -> str:
    """The named statement and its tables, for error messages."""
    text = statement("sqlserver", name)
    tables = [value for key, value in names.items() if f"{{{key}}}" in text and "." in value]
    return f"{name} on {', '.join(tables)}" if tables else name


@cache
def text_of(name: str, values: tuple[str, ...]) -> tuple[str, list[str]]:
    """The named statement with a `?` for each value, and the values' order."""
    text = _COMMENT.sub("", statement("sqlserver", name))
    order = [found[1] for found in _VALUE.finditer(text)]
    if set(order) != set(values):
        raise ValueError(f"{name} takes {sorted(set(order))}, not {list(values)}")
    return _VALUE.sub("?", text), order
