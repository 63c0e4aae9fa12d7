"""Statements of a PostgreSQL store on one session."""

import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from duesweep.drivers.postgresql import PostgreSqlConnection, literal
from duesweep.sql import statement

_POLL_SECONDS = 0.2


class PostgreSqlStatements:
    """Locks are session-level advisory ones. `names` are what statements have in braces."""

    def __init__(self, connection: PostgreSqlConnection, names: Mapping[str, str]) -> None:
        self._connection = connection
        self._names = names

    def row(self, name: str, **values: object) -> Any:
        """The only row that the named statement returns."""
        return self._connection.row(name, self._names, **values)

    def rows(self, name: str, **values: object) -> list[Any]:
        """The rows that the named statement returns."""
        return self._connection.rows(name, self._names, **values)

    def execute(self, name: str, **values: object) -> int:
        """Run the named statement; how many rows it touched."""
        return self._connection.execute(name, self._names, **values)

    def query(self, name: str, **literals: str) -> str:
        """The text of a statement for JDBC, with `literals` quoted in it."""
        quoted = {key: literal(value) for key, value in literals.items()}
        return statement("postgresql", name).format(**self._names, **quoted)

    def pages(self, query: str, key: str, first: object, most: int) -> Iterator[list[Any]]:
        """The rows that a `query` returns, `most` at a time, in the order of `key`."""
        names, after = {"query": query, "key": key}, first
        while rows := self._connection.rows("read_page", names, after=after, most=most):
            yield rows
            after = getattr(rows[-1], key)

    def transaction(self) -> AbstractContextManager[None]:
        """A transaction; nested, a savepoint."""
        return self._connection.transaction()

    def try_lock(self, name: str) -> bool:
        """Whether this session now holds the lock; never waits."""
        return bool(self.row("try_lock", lock_key=_lock_key(name)).locked)

    def wait_for_lock(self, name: str, seconds: float) -> bool:
        """Whether this session holds the lock after waiting for it. Asks again and again: a waiting
        statement would hold a snapshot meanwhile.
        """
        deadline = time.monotonic() + seconds
        while not self.try_lock(name):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def unlock(self, name: str) -> None:
        """Release a lock that this session holds."""
        self.row("unlock", lock_key=_lock_key(name))


def _lock_key(name: str) -> int:
    """The key of an advisory lock: 64 bits, so that others' keys are not met by chance."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
