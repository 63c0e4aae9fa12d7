"""A store on SQL Server whose tasks die at the worst moments, when Spark first runs them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

from pyspark import TaskContext

from duesweep.drivers.sqlserver.session import SqlServerSession, connect
from duesweep.stores.sqlserver.task import SqlServerTaskSession
from duesweep.stores.store import SqlStore


class InjectedFaultError(Exception):
    """No fault that duesweep knows: it must reach Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingSqlServerStore(SqlStore):
    """Its sessions raise at `moment` of their `batch`th transaction (from 1)."""

    moment: str = "never"
    batch: int = 0

    @classmethod
    def of(cls, store: SqlStore, moment: str, batch: int) -> "FailingSqlServerStore":
        """`store`, failing."""
        same = {field.name: getattr(store, field.name) for field in fields(store)}
        return cls(**same, moment=moment, batch=batch)

    def open_task(self) -> SqlServerTaskSession:
        connection = connect(self.dsn, self.timeouts.task)
        context = TaskContext.get()
        is_repeated = context is not None and context.attemptNumber() > 0
        if self.moment == "never" or is_repeated:
            return SqlServerTaskSession(connection, self)
        return _FailingSession(connection, self)


class _FailingSession(SqlServerTaskSession):
    def __init__(self, connection: SqlServerSession, failing: FailingSqlServerStore) -> None:
        super().__init__(connection, failing)
        self._failing = failing
        self._transactions = 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        # Savepoints are not counted.
        is_batch = not self.connection.is_in_transaction
        self._transactions += is_batch
        fails = is_batch and self._transactions == self._failing.batch
        with super().transaction():
            yield
            if fails and self._failing.moment == "before COMMIT":
                raise InjectedFaultError(self._failing.moment)
        if fails and self._failing.moment == "after COMMIT":
            raise InjectedFaultError(self._failing.moment)
