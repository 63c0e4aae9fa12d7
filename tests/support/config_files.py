"""Configuration files in the current folder, and more text for any."""

import re
from pathlib import Path

import pytest

from duesweep.config import load
from duesweep.core.errors import ConfigError

MINIMAL = """
[store]
dsn = "postgresql://sweeper:s3cret@db.example:5432/sales"
endpoint = "Sales.Orders"

[ledger]
root = "/ledger"
"""


SQL_SERVER = """
[store]
kind = "sqlserver"
dsn = "Driver=x;Server=db.example,1433;Database=nsb;Uid=sweeper;Pwd=s3cret;Encrypt=yes"
endpoint = "Sales.Orders"
[ledger]
root = "/ledger"
"""


def file_of(text: str = MINIMAL, name: str = "sales.toml") -> Path:
    """A file with this text; its path."""
    path = Path(name).absolute()
    path.write_text(text, encoding="utf-8")
    return path


def without_place(refusal: str) -> str:
    """A refusal without its places, which tests/acceptance/test_mistakes.py checks."""
    begins = r"(?=\S+ (?:is|has|of) |There |queues|store|sweep|retry)"
    return re.sub(rf"(?:--set \S+|\S+\.toml:\d+): {begins}", "", refusal)


def refusal_of(text: str = MINIMAL, *overrides: str) -> str:
    """The refusal of a file with this text, and these overrides, without the places."""
    with pytest.raises(ConfigError) as refusal:
        load(file_of(text), overrides)
    return without_place(str(refusal.value))


def add_routes(file: Path, *routes: tuple[str, str, str]) -> Path:
    """Append a [[route]] for each (destination, connection, queue)."""
    with file.open("a", encoding="utf-8") as text:
        for destination, connection, queue in routes:
            text.write(
                f"[[route]]\ndestination = '{destination}'\nconnection = '{connection}'\n"
                f"queue = '{queue}'\n"
            )
    return file
