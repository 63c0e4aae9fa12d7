"""The PostgreSQL transport's delayed table as a store."""

from dataclasses import dataclass

from duesweep.drivers.postgresql import DRIVER_LIMITS, TASK_LIMITS, connect
from duesweep.stores.postgresql.driver import PostgreSqlDriverSession
from duesweep.stores.postgresql.place import PostgreSqlPlace
from duesweep.stores.postgresql.task import PostgreSqlTaskSession


@dataclass(frozen=True, slots=True)
class PostgreSqlStore(PostgreSqlPlace):
    """A place, and the two kinds of session that it opens."""

    def open_task(self) -> PostgreSqlTaskSession:
        """A session for one slice."""
        return PostgreSqlTaskSession(connect(self.dsn, TASK_LIMITS), self)

    def open_driver(self) -> PostgreSqlDriverSession:
        """A session for the driver."""
        return PostgreSqlDriverSession(connect(self.dsn, DRIVER_LIMITS), self)
