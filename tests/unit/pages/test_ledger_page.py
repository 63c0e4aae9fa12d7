"""docs/ledger.md has the columns of the ledger's tables.

With DUESWEEP_WRITE_PAGES=1 it is written again; the meanings are the columns' comments.
"""

import os
import re
from pathlib import Path

from duesweep.ledger.rows import SCHEMAS, comments

_PAGE = Path(__file__).parents[3] / "docs" / "ledger.md"
_TABLE = re.compile(
    r"(?<=^## )(\w+)(\n.*?\|---\|---\|---\|\n)((?:\|[^\n]*\n)*)", re.MULTILINE | re.DOTALL
)


def test_page_has_each_column_with_its_type() -> None:
    text = _PAGE.read_text(encoding="utf-8")
    written = _TABLE.sub(lambda table: table[1] + table[2] + _rows(table[1]), text)
    if os.environ.get("DUESWEEP_WRITE_PAGES"):
        _PAGE.write_text(written, encoding="utf-8")

    assert [table[1] for table in _TABLE.finditer(text)] == list(SCHEMAS)
    assert text == written, (
        "renew the page with DUESWEEP_WRITE_PAGES=1, and give new columns a comment"
    )


def test_each_column_and_each_table_has_a_comment() -> None:
    for name, schema in SCHEMAS.items():
        told = comments(name)
        assert list(told) == ["", *schema.names]
        assert all(map(str.strip, told.values()))


def test_page_begins_each_table_with_its_comment() -> None:
    text = " ".join(_PAGE.read_text(encoding="utf-8").split())

    assert [name for name in SCHEMAS if f"## {name} {comments(name)['']}" not in text] == []


def _rows(table: str) -> str:
    told = comments(table)
    return "".join(
        f"| `{column.name}` | {column.type} | {told[column.name]} |\n" for column in SCHEMAS[table]
    )
