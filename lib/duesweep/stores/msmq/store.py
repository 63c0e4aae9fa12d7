"""The MSMQ transport's delayed message store, a table in SQL Server, as a store."""

from dataclasses import dataclass

from duesweep.drivers.sqlserver import connect
from duesweep.stores.modes import refuse_distributed
from duesweep.stores.msmq.messages import MsmqMessageSession
from duesweep.stores.msmq.task import MsmqTaskSession
from duesweep.stores.sqlserver.driver import SqlServerDriverSession
from duesweep.stores.sqlserver.kinds import MSMQ, SqlServerTableKind
from duesweep.stores.sqlserver.location import SqlServerLocation
from duesweep.stores.sqlserver.setup import SqlServerSetup
from duesweep.stores.values import TransactionMode


@dataclass(frozen=True, slots=True)
class MsmqStore(SqlServerLocation):
    """A place, and the kinds of session that it opens."""

    kind: SqlServerTableKind = MSMQ

    def set_up_infrastructure(self) -> None:
        """Create the message store's table and the journal, where they are missing."""
        SqlServerSetup(self.dsn, "store.dsn", store=self, timeouts=self.timeouts).install(
            rebind=False
        )

    def initialise(self, endpoint: str, mode: TransactionMode) -> None:  # noqa: ARG002 - known
        """Refuse what takes a distributed transaction."""
        refuse_distributed(self.source, mode)

    def open_task(self) -> MsmqTaskSession:
        """A session for one slice."""
        return MsmqTaskSession(connect(self.dsn, self.timeouts.task), self)

    def open_driver(self) -> SqlServerDriverSession:
        """A session for the driver."""
        return SqlServerDriverSession(connect(self.dsn, self.timeouts.driver), self)

    def open_messages(self) -> MsmqMessageSession:
        """A session for one message at a time."""
        return MsmqMessageSession(connect(self.dsn, self.timeouts.task), self)
