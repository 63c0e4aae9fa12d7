"""A delayed table in a relational database as a store."""

from dataclasses import dataclass
from typing import Any

from duesweep.stores.base import Operators, Store, TransactionMode, refuse_distributed
from duesweep.stores.dialect import Location
from duesweep.stores.setup import SqlSetup
from duesweep.stores.sql_changes import SqlChanges
from duesweep.stores.sql_driver import SqlDriver
from duesweep.stores.sql_task import SqlTask


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlStore(Location, Store):  # type: ignore[override] # it computes `own_queue`
    """Its location, its kind, and the sessions that it opens."""

    def setup_step(self, **more: Any) -> SqlSetup:
        """The creation of the store's tables; `more` has other parts that are created with them."""
        return SqlSetup(
            dialect=self.dialect,
            dsn=self.dsn,
            setting="store.dsn",
            store=self,
            timeouts=self.timeouts,
            **more,
        )

    def set_up_infrastructure(self) -> None:
        self.setup_step().install(rebind=False)

    def initialise(self, endpoint: str, mode: TransactionMode) -> None:  # noqa: ARG002 - known
        refuse_distributed(self.source, mode)

    def open_task(self) -> SqlTask:
        return self._open_own_task()

    def open_changes(self) -> SqlChanges:
        # A subclass may open another task, which knows only the contract of batches.
        return SqlChanges(self._open_own_task())

    def open_driver(self) -> SqlDriver:
        return SqlDriver(self.dialect.connect(self.dsn, self.timeouts.driver), self)

    def operators(self) -> Operators:
        return self

    def _open_own_task(self) -> SqlTask:
        task: SqlTask = self.dialect.task(self.dialect.connect(self.dsn, self.timeouts.task), self)
        return task
