"""A delayed table in PostgreSQL as a store."""

from dataclasses import dataclass

from duesweep.drivers.postgresql.session import connect
from duesweep.stores.modes import refuse_distributed
from duesweep.stores.postgresql.changing import PostgreSqlChangeSession
from duesweep.stores.postgresql.driver import PostgreSqlDriverSession
from duesweep.stores.postgresql.location import PostgreSqlLocation
from duesweep.stores.postgresql.messages import PostgreSqlMessageSession
from duesweep.stores.postgresql.setup import PostgreSqlSetup
from duesweep.stores.postgresql.task import PostgreSqlTaskSession
from duesweep.stores.values import TransactionMode


@dataclass(frozen=True, slots=True)
class PostgreSqlStore(PostgreSqlLocation):
    """Where it is, of which kind, and the sessions that it opens."""

    def set_up_infrastructure(self) -> None:
        """Create the delayed table and the journal, where they are missing."""
        step = PostgreSqlSetup(self.dsn, "store.dsn", store=self, timeouts=self.timeouts)
        step.install(rebind=False)

    def initialise(self, endpoint: str, mode: TransactionMode) -> None:  # noqa: ARG002 - known
        """Refuse what takes a distributed transaction."""
        refuse_distributed(self.source, mode)

    def open_task(self) -> PostgreSqlTaskSession:
        """A session for one slice."""
        return PostgreSqlTaskSession(connect(self.dsn, self.timeouts.task), self)

    def open_changes(self) -> PostgreSqlChangeSession:
        """A session for an operator's command."""
        return PostgreSqlChangeSession(connect(self.dsn, self.timeouts.task), self)

    def open_driver(self) -> PostgreSqlDriverSession:
        """A session for the driver."""
        return PostgreSqlDriverSession(connect(self.dsn, self.timeouts.driver), self)

    def open_messages(self) -> PostgreSqlMessageSession:
        """A session for one message at a time."""
        return PostgreSqlMessageSession(connect(self.dsn, self.timeouts.task), self)
