"""docs/ledger.md has the columns of the ledger's tables.

With DUESWEEP_WRITE_PAGES=1 it is written again; the meanings are the page's own.
"""

import os
import re
from pathlib import Path

from duesweep.ledger.rows import SCHEMAS

_PAGE = Path(__file__).parents[3] / "docs" / "ledger.md"
_TABLE = re.compile(
    r"(?<=^## )(\w+)(\n.*?\|---\|---\|---\|\n)((?:\|[^\n]*\n)*)", re.MULTILINE | re.DOTALL
)
_ROW = re.compile(r"^\| `(\w+)` \| .*? \| (.*) \|$", re.MULTILINE)


def test_page_has_each_column_with_its_type() -> None:
    text = _PAGE.read_text(encoding="utf-8")
    written = _TABLE.sub(lambda table: table[1] + table[2] + _rows(table[1], table[3]), text)
    if os.environ.get("DUESWEEP_WRITE_PAGES"):
        _PAGE.write_text(written, encoding="utf-8")

    assert [table[1] for table in _TABLE.finditer(text)] == list(SCHEMAS)
    assert text == written, (
        "renew the page with DUESWEEP_WRITE_PAGES=1, and give new columns a meaning"
    )


def test_each_column_has_a_meaning() -> None:
    meanings = [meaning for _, meaning in _ROW.findall(_PAGE.read_text(encoding="utf-8"))]

    assert len(meanings) == sum(map(len, SCHEMAS.values()))
    assert all(map(str.strip, meanings))


def _rows(table: str, rows: str) -> str:
    meanings = dict(_ROW.findall(rows))
    return "".join(
        f"| `{column.name}` | {column.type} | {meanings.get(column.name, '')} |\n"
        for column in SCHEMAS[table]
    )
