"""The statements: one file each, the same names in every dialect."""

from functools import cache
from importlib.resources import files


@cache
def statement(dialect: str, name: str) -> str:
    """The text of `sql/<dialect>/<name>.sql`; works from within an archive too."""
    return files(__name__).joinpath(dialect, f"{name}.sql").read_text(encoding="utf-8")
