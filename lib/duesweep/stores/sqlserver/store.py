"""A delayed table on SQL Server as a store."""

from dataclasses import dataclass

from duesweep.drivers.sqlserver.session import connect
from duesweep.stores.modes import refuse_distributed
from duesweep.stores.sqlserver.changing import SqlServerChangeSession
from duesweep.stores.sqlserver.driver import SqlServerDriverSession
from duesweep.stores.sqlserver.location import SqlServerLocation
from duesweep.stores.sqlserver.messages import SqlServerMessageSession
from duesweep.stores.sqlserver.setup import SqlServerSetup
from duesweep.stores.sqlserver.task import SqlServerTaskSession
from duesweep.stores.values import TransactionMode


@dataclass(frozen=True, slots=True)
class SqlServerStore(SqlServerLocation):
    """Where it is, of which kind, and the sessions that it opens."""

    def set_up_infrastructure(self) -> None:
        """Create the delayed table and the journal, where they are missing."""
        SqlServerSetup(self.dsn, "store.dsn", store=self, timeouts=self.timeouts).install(
            rebind=False
        )

    def initialise(self, endpoint: str, mode: TransactionMode) -> None:  # noqa: ARG002 - known
        """Refuse what takes a distributed transaction."""
        refuse_distributed(self.source, mode)

    def open_task(self) -> SqlServerTaskSession:
        """A session for one slice."""
        return SqlServerTaskSession(connect(self.dsn, self.timeouts.task), self)

    def open_changes(self) -> SqlServerChangeSession:
        """A session for an operator's command."""
        return SqlServerChangeSession(connect(self.dsn, self.timeouts.task), self)

    def open_driver(self) -> SqlServerDriverSession:
        """A session for the driver."""
        return SqlServerDriverSession(connect(self.dsn, self.timeouts.driver), self)

    def open_messages(self) -> SqlServerMessageSession:
        """A session for one message at a time."""
        return SqlServerMessageSession(connect(self.dsn, self.timeouts.task), self)
