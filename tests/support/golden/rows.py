"""The rows of a database and of a ledger, and a command's changes of them, as sorted JSON."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from duesweep.core.headers import write_json
from duesweep.core.message import MESSAGE_ID
from support.endpoint import Endpoint
from support.golden.normal import Normaliser

Row = Mapping[str, Any]
# A longer body, or other text, is recorded as its hash and its length.
_LONGEST = 60
_DIGITS = 12
# With more rows their columns are named once.
_MOST_NAMED = 3

# The order in which messages of one batch arrive is not promised, nor are their ids in the queue.
_QUEUE = {"id", "expires", "headers", "body", "seq"}
_OF_CHANCE = {"id", "seq"}
# The ids of the world's own messages, and their replacements in a line.
_WORLD = (
    (re.compile(r"22222222-0000-4000-8000-0*(\d+)"), r"key \1"),
    (re.compile(r"11111111-0000-4000-8000-0*(\d+)"), r"id \1"),
)
_HEADERS = {"headers", "headers_text"}
# Of a table whose rows leave it again.
_LEDGER_KEYS = {"retries": ("message_key",)}

_TABLES = """
SELECT c.oid, format('%I.%I', n.nspname, c.relname) AS name, ARRAY(
    SELECT a.attname::text FROM pg_index i JOIN pg_attribute a
    ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
    WHERE i.indrelid = c.oid AND i.indisprimary ORDER BY a.attnum) AS key
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
"""


@dataclass(frozen=True, slots=True)
class Table:
    """Its rows, and the columns that tell one from another; none: all of them."""

    key: Sequence[str]
    rows: Sequence[Row]


def read_database(endpoint: Endpoint[Any]) -> dict[str, Table]:
    return {
        f"table {table.name}": Table(
            table.key, [row._asdict() for row in endpoint.fetch(f"SELECT * FROM {table.name}")]
        )
        for table in endpoint.fetch(_TABLES)
    }


def read_ledger(root: Path) -> dict[str, Table]:
    return {
        f"ledger {folder.name}": Table(_LEDGER_KEYS.get(folder.name, ()), _ledger_rows(folder))
        for folder in root.glob("*")
        if (folder / "_delta_log").exists()
    }


def _ledger_rows(folder: Path) -> list[Row]:
    found = QueryBuilder().register("one", DeltaTable(folder))
    table = pa.table(found.execute("SELECT * FROM one").read_all())
    rows: list[Row] = table.to_pylist(maps_as_pydicts="strict")
    return rows


@dataclass
class Changes:
    """The differences between two readings. `headers` are the headers that messages were stored
    with, by message id.
    """

    normal: Normaliser
    headers: Mapping[str, Mapping[str, Any]]

    def text(self, before: Mapping[str, Table], after: Mapping[str, Table]) -> str:
        """A line for each row that is new, and for the key of each that is gone; "" if none is."""
        lines: list[str] = []
        for name in sorted({*before, *after}):
            lines += self._of_table(name, before.get(name), after.get(name))
        return "".join(f"{line}\n" for line in lines)

    def _of_table(self, name: str, before: Table | None, after: Table | None) -> Iterator[str]:
        if after is None:
            yield f"{name}: dropped"
            return
        if before is None:
            yield f"{name}: created"
        left, new = (_counted(table) for table in (before, after))
        rows = {repr(row): row for table in (before, after) if table for row in table.rows}
        gone = [_only(rows[one], after.key) for one in (left - new).elements()]
        yield from self._lines(f"{name}: gone", gone)
        yield from self._lines(f"{name}: new", [rows[one] for one in (new - left).elements()])

    def _lines(self, title: str, rows: Sequence[Row]) -> Iterator[str]:
        if not rows:
            return
        with self.normal.without_numbers():
            # Random ids get their numbers in an order that is the same each time.
            ordered = sorted(rows, key=lambda row: json.dumps(self._shown(row)))
        shown = [self._shown(row) for row in ordered]
        same = _same(shown)
        yield f"{title}: {len(rows)}"
        if same:
            yield f"  each: {_line(same)}"
        names = [name for name in shown[0] if name not in same]
        is_long = len(shown) > _MOST_NAMED
        if is_long and names:
            yield f"  columns: {', '.join(names)}"
        for row in shown if names else ():
            one = {name: row[name] for name in names}
            yield f"  {_line(list(one.values()) if is_long else one)}"

    def _shown(self, row: Row) -> Row:
        left_out = _OF_CHANCE if row.keys() >= _QUEUE else ()
        found: dict[str, Any] = {}
        for name, value in row.items():
            if name in _HEADERS:
                found |= self._headers(name, value)
            elif name not in left_out:
                is_body = isinstance(value, bytes)
                found[name] = _body(value) if is_body else self.normal.value(value, name)
        return found

    def _headers(self, name: str, value: Any) -> Row:
        """Whose they are, and how they differ from the stored ones."""
        try:
            now = json.loads(value) if isinstance(value, str) else dict(value)
            stored = self.headers[now[MESSAGE_ID]]
        except (ValueError, KeyError, TypeError):
            return {f"{name} of": None, name: self.normal.value(value)}
        kept = {one: text for one, text in stored.items() if now.get(one, "") == text}
        removed = [f"-{one}" for one in stored if one not in now]
        added = [f"+{one}: {self.normal.value(t)}" for one, t in now.items() if one not in kept]
        is_rewritten = isinstance(value, str) and not added and value != write_json(kept)
        how = " ".join(["as stored", *removed, *added, *(["rewritten"] if is_rewritten else [])])
        return {f"{name} of": now[MESSAGE_ID], name: how}


def _counted(table: Table | None) -> Counter[str]:
    return Counter(map(repr, table.rows if table else ()))


def _only(row: Row, names: Sequence[str]) -> Row:
    if row.keys() >= _QUEUE:
        # Whose it was, and not how its headers differed: that was recorded when it came.
        return {"gone": _message_id(row["headers"]), "body": row["body"]}
    return {name: row[name] for name in names or row}


def _message_id(headers: str) -> object:
    try:
        return json.loads(headers)[MESSAGE_ID]
    except (ValueError, KeyError, TypeError):
        return None


def _same(rows: Sequence[Row]) -> Row:
    """The columns whose value all rows share."""
    if len(rows) == 1:
        return {}
    first = rows[0]
    return {name: one for name, one in first.items() if all(row[name] == one for row in rows)}


def _body(value: bytes) -> str:
    if len(value) <= _LONGEST and value.isascii() and value.decode().isprintable():
        return value.decode()
    return f"{len(value):,} bytes, {_hash(value)}"


def _hash(value: bytes) -> str:
    return f"sha256 {hashlib.sha256(value).hexdigest()[:_DIGITS]}"


def _line(row: Row | Sequence[Any]) -> str:
    line = json.dumps(row, ensure_ascii=False)
    for pattern, name in _WORLD:
        line = pattern.sub(name, line)
    return line
