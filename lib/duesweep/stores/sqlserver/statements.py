"""Statements of a store on SQL Server on one session."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from duesweep.drivers.sqlserver import SqlServerConnection, literal
from duesweep.sql import statement


class SqlServerStatements:
    """Locks are the session's application locks. `names` are what statements have in braces."""

    def __init__(self, connection: SqlServerConnection, names: Mapping[str, str]) -> None:
        self._connection = connection
        self._names = names

    def row(self, name: str, **values: object) -> Any:
        """The only row that the named statement returns."""
        return self._connection.row(name, self._names, **_adapted(values))

    def rows(self, name: str, **values: object) -> list[Any]:
        """The rows that the named statement returns."""
        return self._connection.rows(name, self._names, **_adapted(values))

    def execute(self, name: str, **values: object) -> int:
        """Run the named statement; how many rows it touched."""
        return self._connection.execute(name, self._names, **_adapted(values))

    def execute_many(self, name: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Run the named statement once for each of these sets of values, all of the same names."""
        self._connection.execute_many(name, self._names, [_adapted(values) for values in rows])

    def read_while(
        self, wanted: Callable[[Any], bool], name: str, **values: object
    ) -> tuple[list[Any], bool]:
        """Rows of the named statement, one at a time, up to the first after which no more are
        `wanted`; and whether these are all.
        """
        return self._connection.read_while(wanted, name, self._names, **_adapted(values))

    def query(self, name: str, **literals: str) -> str:
        """The text of a statement for JDBC, with `literals` quoted in it."""
        quoted = {key: literal(value) for key, value in literals.items()}
        return statement("sqlserver", name).format(**self._names, **quoted)

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
        return self.wait_for_lock(name, 0)

    def wait_for_lock(self, name: str, seconds: float) -> bool:
        """Whether this session now holds the lock after waiting for it at most so long. In pieces:
        a server that waited longer than a statement may take would pass for a silent one.
        """
        deadline = time.monotonic() + seconds
        longest = self._connection.limits.statement_seconds / 2
        while True:
            left = max(0.0, deadline - time.monotonic())
            wait_ms = int(min(left, longest) * 1_000)
            if self.row("try_lock", lock=name, wait_ms=wait_ms).locked:
                return True
            if left <= longest:
                return False

    def unlock(self, name: str) -> None:
        """Release a lock that this session holds."""
        self._connection.execute("unlock", {}, lock=name)


def due_text(moment: datetime, timespec: str = "microseconds") -> str:
    """`moment` as T-SQL's style 121. The server's own texts of a Due have a digit more, which makes
    them exact: as a `datetime2(7)` it is one tick of a `datetime`, 1/300 s, and no other.
    """
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", timespec)


def due_of(text: str) -> datetime:
    """The moment that `due_text` wrote."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _adapted(values: Mapping[str, object]) -> dict[str, object]:
    return {name: _value(value) for name, value in values.items()}


def _value(value: object) -> object:
    match value:
        case datetime():
            return due_text(value)
        case UUID():
            return str(value)
        case bool():
            return int(value)
        case list():
            return json.dumps(value, ensure_ascii=False)
    return value
