"""The columns of duesweep's own tables, out of the statement that creates them."""

import re
from functools import cache

from duesweep.sql import statement

_TABLE = re.compile(
    r"CREATE TABLE (?:IF NOT EXISTS )?\{(\w+)\} \(\n(.*?)^\)", re.MULTILINE | re.DOTALL
)
# A column's line begins with its name in small letters, a constraint's with a capital one.
_COLUMN = re.compile(r"^ +[\"\[]?([a-z_]+)[\"\]]? (\w+(?:\[\])?)", re.MULTILINE)
SETUP = "Run the command `setup` once"
RESHAPE = "Another version of duesweep made it: run the command `setup`, which adds what it lacks"


@cache
def journal_columns(dialect: str) -> dict[str, dict[str, str]]:
    """Columns and their types, as written there but for lengths, by the table's name."""
    text = statement(dialect, "create_journal")
    return {name: dict(_COLUMN.findall(columns)) for name, columns in _TABLE.findall(text)}
