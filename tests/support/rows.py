"""A session that answers each statement with recorded rows."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

from duesweep.core.errors import StoreError

# Of a statement; the values of each by the names of their columns. A function makes a new value.
Rows = Sequence[Mapping[str, Any]]


class RecordedSession:
    """`rows` are by the statements' names; `row` gives them in turn, and begins again. A statement
    that is in `refused` fails with the text there.
    """

    tls: Mapping[str, str] = {}
    is_encrypted = False

    def __init__(self, rows: Mapping[str, Rows], refused: Mapping[str, str] | None = None) -> None:
        self._rows = rows
        self._refused = refused or {}
        self.asked: list[str] = []

    def named(self, _: Mapping[str, str]) -> "RecordedSession":
        return self

    def transaction(self) -> AbstractContextManager[None]:
        return nullcontext()

    def insert_messages(self, *_: object) -> None:
        """It takes them."""

    def execute(self, name: str, /, **_: object) -> int:
        self.asked.append(name)
        return 1

    def rows(self, name: str, /, **_: object) -> list[Any]:
        self.asked.append(name)
        if name in self._refused:
            raise StoreError(self._refused[name], transient=False)
        return [
            SimpleNamespace(
                **{key: each() if callable(each) else each for key, each in row.items()}
            )
            for row in self._rows[name]
        ]

    def rows_of_each(self, *named: tuple[str, Mapping[str, Any], object], what: str) -> list[Any]:  # noqa: ARG002 - for errors
        return [self.rows(name, **values) for name, values, _ in named]

    def row(self, name: str, /, **values: object) -> Any:
        rows = self.rows(name, **values)
        return rows[(self.asked.count(name) - 1) % len(rows)]
