"""A store whose slices die at the worst moments, the first time that they run, or wait there to be
killed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import psycopg
from pyspark import TaskContext

from duesweep.core.timeouts import DEFAULT_TIMEOUTS
from duesweep.drivers.postgresql.session import PostgreSqlSession, connect
from duesweep.stores.due import SqlDriver
from duesweep.stores.postgresql.task import PostgreSqlTaskSession
from duesweep.stores.store import SqlStore

Moment = Literal["between COPY and COMMIT", "after COMMIT", "held before COMMIT", "never"]

# While a test holds this advisory lock, tasks wait before they begin.
GATE = 7_041
# While a test holds this one, the process to be killed waits at its moment.
HOLD = 7_042


class InjectedFaultError(Exception):
    """No fault that duesweep knows: it must reach Spark."""


@dataclass(frozen=True, slots=True)
class FailingStore:
    """`store`, whose sessions raise at `moment` of their `batch`th transaction (from 1)."""

    store: SqlStore
    moment: Moment
    batch: int

    @property
    def source(self) -> str:
        return self.store.source

    @property
    def own_queue(self) -> str:
        return self.store.own_queue

    def open_task(self) -> PostgreSqlTaskSession:
        _wait_for(self.store.dsn, GATE)
        connection = connect(self.store.dsn, DEFAULT_TIMEOUTS.task)
        context = TaskContext.get()
        is_repeated = context is not None and context.attemptNumber() > 0
        if self.moment == "never" or is_repeated:
            return PostgreSqlTaskSession(connection, self.store)
        return _FailingSession(connection, self)

    def open_driver(self) -> SqlDriver:
        return self.store.open_driver()


class _FailingSession(PostgreSqlTaskSession):
    def __init__(self, connection: PostgreSqlSession, failing: FailingStore) -> None:
        super().__init__(connection, failing.store)
        self._failing = failing
        self._transactions = 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._transactions += 1
        fails = self._transactions == self._failing.batch
        with super().transaction():
            yield
            if fails and self._failing.moment == "held before COMMIT":
                _wait_for(self._failing.store.dsn, HOLD)
            if fails and self._failing.moment == "between COPY and COMMIT":
                raise InjectedFaultError(self._failing.moment)
        if fails and self._failing.moment == "after COMMIT":
            raise InjectedFaultError(self._failing.moment)


def _wait_for(dsn: str, lock: int) -> None:
    with psycopg.connect(dsn) as gate:
        gate.execute("SELECT pg_advisory_lock_shared(%s)", [lock])
