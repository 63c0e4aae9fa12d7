"""How a session runs the statements of `duesweep.sql`, in every dialect alike."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Statements(Protocol):
    """The named statements of one dialect on one session. The names that statements have in braces
    are known already; `values` are bound. Raises `StoreError`.
    """

    def row(self, name: str, /, **values: object) -> Any:
        """The only row that the named statement returns; its columns are attributes."""
        ...

    def rows(self, name: str, /, **values: object) -> list[Any]:
        """The rows that the named statement returns."""
        ...

    def execute(self, name: str, /, **values: object) -> int:
        """Run the named statement; returns the number of rows that it touched."""
        ...

    def named(self, names: Mapping[str, str]) -> "Statements":
        """The statements of the same session with other names in their braces."""
        ...

    def query(self, name: str, /, **literals: str) -> str:
        """The text of a statement for JDBC, with `literals` quoted in it."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """A transaction; nested, a savepoint."""
        ...
