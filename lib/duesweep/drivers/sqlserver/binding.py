"""Turns a named statement, its names and its values into text and parameters for ODBC, and texts of
the server into texts.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from types import MappingProxyType
from uuid import UUID

from duesweep.core.address import SqlServerTable, bracket_name
from duesweep.core.errors import StoreError
from duesweep.drivers.statements import Keys, Names, statement  # noqa: TID251 - a driver

_SIGNS = ",;|~^!#$%&*+=?@_/:<>{}[]()"

# A statement's own variables begin with a capital letter (@Now), values with a small one.
_VALUE = re.compile(r"(?<![@\w])@([a-z]\w*)")
_COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)
# The driver's buffer for one group of rows: the number of rows times the longest row.
_GATHERED_BYTES = 16_000_000
# The longest name of an application lock. The server cuts longer ones here, the transport's too.
LONGEST_LOCK = 255
# Command-line tools begin without the first, and then refuse an index with a condition.
_PREAMBLE = """SET QUOTED_IDENTIFIER ON;
SET ANSI_NULLS ON;
USE {catalog};
"""
# Of a `datetime`, in a second.
_TICKS = 300
_FIRST = datetime(1753, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 12, 31, 23, 59, 59, 996_666, tzinfo=UTC)
# ODBC's SQL_WVARCHAR and SQL_VARBINARY, without a limit, and with the longest one. By the lengths
# of its values a statement would be another one for the server each time, with a plan of its own.
UNLIMITED_TEXT, UNLIMITED_BYTES = (-9, 0, 0), (-3, 0, 0)
_SHORT_TEXT, _SHORT_BYTES = (-9, 4_000, 0), (-3, 8_000, 0)


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


@cache
def text_of(name: str, values: tuple[str, ...]) -> tuple[str, list[str]]:
    """The named statement with a `?` for each value, and the values' order. A value that only
    another dialect needs stands in the comment.
    """
    commented = statement("sqlserver", name)
    known = set(_VALUE.findall(commented))
    if known != set(values):
        raise ValueError(f"{name} takes {sorted(known)}, not {list(values)}")
    text = _COMMENT.sub("", commented)
    return _VALUE.sub("?", text), _VALUE.findall(text)


def table_names(**tables: SqlServerTable) -> dict[str, str]:
    """What statements have in braces: for each table its name, the same without its database, the
    same and its schema for the inside of an N'...' literal, and the name of the lock that the
    transport takes to create it.
    """
    names: dict[str, str] = {}
    for key, table in tables.items():
        names |= {
            key: table.sql,
            f"{key}_local": f"{bracket_name(table.schema)}.{bracket_name(table.table)}",
            f"{key}_literal": quoted(table.sql),
            f"{key}_schema": quoted(table.schema),
            f"{key}_lock": quoted(f"{table.sql}_lock"[:LONGEST_LOCK]),
        }
    return names


def creation(
    name: str, columns: Mapping[str, str] = MappingProxyType({}), /, **tables: SqlServerTable
) -> str:
    """The text of a statement that creates or alters tables. `columns` are quoted already."""
    return statement("sqlserver", name).format(**columns, **table_names(**tables))


def script(catalog: str, texts: Iterable[str]) -> str:
    """Statements for a database, in batches as the command-line tools of SQL Server take them."""
    return "GO\n".join([_PREAMBLE.format(catalog=bracket_name(catalog)), *texts])


def quoted(text: str) -> str:
    """`text` for the inside of a literal."""
    return text.replace("'", "''")


def due_text(moment: datetime, timespec: str = "microseconds") -> str:
    """`moment` as T-SQL's style 121. The server's own texts of a Due have a digit more, which makes
    them exact: as a `datetime2(7)` it is one tick of a `datetime`, 1/300 s, and no other.
    """
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", timespec)


def bound_text(moment: datetime) -> str:
    """`moment`, or the first tick of a `datetime` after it. A Due is a tick, so it is before both
    or before neither. A moment outside the range of `datetime` becomes its first or last tick.
    """
    moment = min(max(moment, _FIRST), _LAST)
    ticks = -(-moment.microsecond * _TICKS // 1_000_000)
    seconds = moment.replace(microsecond=0) + timedelta(seconds=ticks // _TICKS)
    number = round(ticks % _TICKS * 10_000_000 / _TICKS)
    return f"{due_text(seconds, 'seconds')}.{number:07}"


def due_of(text: str) -> datetime:
    """The moment that `due_text` wrote."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def adapted(values: Mapping[str, object]) -> dict[str, object]:
    """`values` with instants, ids and flags as T-SQL reads them, lists as JSON, and keys as a text
    with a `separator`.
    """
    found: dict[str, object] = {}
    for name, value in values.items():
        if isinstance(value, Keys):
            found[name], found["separator"] = key_list(value)
        else:
            found[name] = adapted_value(value)
    return found


def adapted_value(value: object) -> object:
    """One value as T-SQL reads it. An instant is the tick of a Due."""
    match value:
        case datetime():
            return bound_text(value)
        case UUID():
            return str(value)
        case bool():
            return int(value)
        case list():
            return json.dumps(list(map(adapted_value, value)), ensure_ascii=False)
    return value


def decode_utf16(raw: bytes | None) -> str | None:
    """Text that is stored as UTF-16. Half a surrogate pair, which .NET can store, becomes an escape
    that no JSON has: the message is poison, and no reason for its task to fail.
    """
    return None if raw is None else raw.decode("utf-16-le", "backslashreplace")


def size_of(value: object) -> tuple[int, int, int] | None:
    """How a parameter is declared; None: as ODBC does, by its type. NULL goes out as text of the
    same length, so it makes no other statement.
    """
    if value is None:
        return _SHORT_TEXT
    if isinstance(value, str):
        units = len(value) if value.isascii() else len(value.encode("utf-16-le", "replace")) // 2
        return _SHORT_TEXT if units <= _SHORT_TEXT[1] else UNLIMITED_TEXT
    if isinstance(value, bytes):
        return _SHORT_BYTES if len(value) <= _SHORT_BYTES[1] else UNLIMITED_BYTES
    return None


def size_of_all(values: Sequence[object]) -> tuple[int, int, int] | None:
    """How a parameter with these values, of one type, is declared."""
    sizes = [size_of(value) for value in values if value is not None]
    unlimited = next((size for size in sizes if size is not None and not size[1]), None)
    return unlimited or next(iter(sizes), _SHORT_TEXT)
