"""Configuration files in the current folder."""

from pathlib import Path

MINIMAL = """
[store]
dsn = "postgresql://sweeper:s3cret@db.example:5432/sales"
endpoint = "Sales.Orders"

[ledger]
root = "/ledger"
"""


def file_of(text: str = MINIMAL, name: str = "sales.toml") -> Path:
    """A file with this text; its path."""
    path = Path(name).absolute()
    path.write_text(text, encoding="utf-8")
    return path
