"""A delayed table in a relational database as a store, and the session of its driver."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from duesweep.core.errors import Problem
from duesweep.drivers.statements import Session
from duesweep.stores.base import (
    OperatorDriver,
    Operators,
    Store,
    TransactionMode,
    refuse_distributed,
)
from duesweep.stores.dialect import Location
from duesweep.stores.setup import SqlSetup
from duesweep.stores.sql_binding import SqlBinding
from duesweep.stores.sql_changes import SqlChanges
from duesweep.stores.sql_connection import SqlConnection
from duesweep.stores.sql_due import SqlDue
from duesweep.stores.sql_journal import SqlJournal
from duesweep.stores.sql_people import SqlPeople
from duesweep.stores.sql_sweeps import SqlSweeps
from duesweep.stores.sql_task import SqlTask
from duesweep.stores.tables import (
    check_reading,
    check_sight,
    check_tables,
    missing_index,
)


class SqlDriver(OperatorDriver):
    """Its parts, on one connection, and the checks of its tables."""

    def __init__(self, session: Session, location: Location) -> None:
        self._at = at = SqlConnection(session, location)
        self.source = at.source
        # For queue tables in the same database.
        self.connection = at.session
        self.journal = SqlJournal(at)
        self.due = SqlDue(at, self.journal)
        self.sweeps = SqlSweeps(at, self.due)
        self.binding = SqlBinding(at)
        self.people = SqlPeople(at, self.due)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._at.leases.close()
        self._at.session.__exit__(*error)

    def check(self) -> None:
        check_tables(self._at.session, self._at.location, self._at.delayed)

    def check_sight(self) -> None:
        check_sight(self._at.session, self._at.location, self._at.delayed)

    def check_reading(self) -> None:
        check_reading(self._at.session, self._at.location, self._at.delayed)

    def notices(self) -> Sequence[Problem]:
        """Messages that are never due, since they have no Due."""
        if not self._at.location.kind.may_lack_due:
            return ()
        timeless = self._at.session.row("count_timeless").timeless
        if not timeless:
            return ()
        return (
            Problem(
                f"{timeless} messages in {self._at.delayed.sql} have no "
                f"{self._at.location.kind.due}, so they never come due",
                "give them one, or remove them",
            ),
        )

    def table_notices(self) -> Sequence[Problem]:
        missing = missing_index(self._at.session, self._at.location, self._at.delayed)
        return () if missing is None else (missing,)


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
        task: SqlTask = self.dialect.task(self.dialect.connect(self.dsn, self.timeouts.task), self)
        return task

    def open_changes(self) -> SqlChanges:
        # A subclass may open another task, which knows only the contract of batches.
        return SqlChanges(SqlStore.open_task(self))

    def open_driver(self) -> SqlDriver:
        return SqlDriver(self.dialect.connect(self.dsn, self.timeouts.driver), self)

    def operators(self) -> Operators:
        return self
