"""How a store runs its statements; a dialect's session puts names and values into them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Statements(Protocol):
    """The statements of one dialect on one session, by the names that `duesweep.sql` gives them."""

    def row(self, name: str, **values: object) -> Any:
        """The only row that the named statement returns; its columns are attributes."""
        ...

    def rows(self, name: str, **values: object) -> list[Any]:
        """The rows that the named statement returns."""
        ...

    def execute(self, name: str, **values: object) -> int:
        """Run the named statement; how many rows it touched."""
        ...

    def query(self, name: str, **literals: str) -> str:
        """The text of a statement for JDBC, with `literals` quoted in it."""
        ...

    def pages(self, query: str, key: str, first: object, most: int) -> Iterator[list[Any]]:
        """The rows that a `query` returns, `most` at a time, in the order of `key`, a unique column
        of it; `first` sorts before all its values.
        """
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """A transaction; nested, a savepoint."""
        ...

    def try_lock(self, name: str) -> bool:
        """Whether this session now holds the lock `name`, until it ends; never waits."""
        ...

    def wait_for_lock(self, name: str, seconds: float) -> bool:
        """Whether this session holds the lock `name` after waiting for it at most so long."""
        ...

    def unlock(self, name: str) -> None:
        """Release a lock that this session holds."""
        ...
