"""The PostgreSQL transport's delayed table as a store."""

from dataclasses import dataclass, field

from duesweep.address import PostgreSqlAddresses, TableName
from duesweep.drivers.postgresql import DRIVER_LIMITS, TASK_LIMITS, connect
from duesweep.stores.postgresql.driver import PostgreSqlDriverSession
from duesweep.stores.postgresql.task import PostgreSqlTaskSession


@dataclass(frozen=True, slots=True)
class PostgreSqlStore:
    """Table `"schema"."<endpoint>.Delayed"`, with duesweep's own tables in the same schema."""

    dsn: str = field(repr=False)
    source: str
    delayed: TableName
    addresses: PostgreSqlAddresses
    writer_time_zone: str | None = None

    @property
    def tables(self) -> dict[str, TableName]:
        """The tables that statements name."""
        return {"delayed": self.delayed, **journal_tables(self.delayed.schema)}

    @property
    def own_queue(self) -> str:
        """The endpoint's own queue table."""
        return str(self.addresses.own_queue)

    def open_task(self) -> PostgreSqlTaskSession:
        """A session for one slice."""
        return PostgreSqlTaskSession(connect(self.dsn, TASK_LIMITS), self)

    def open_driver(self) -> PostgreSqlDriverSession:
        """A session for the driver."""
        return PostgreSqlDriverSession(connect(self.dsn, DRIVER_LIMITS), self)


def journal_tables(schema: str) -> dict[str, TableName]:
    """duesweep's own tables beside a store in `schema`."""
    return {
        name: TableName(schema, f"duesweep_{name}")
        for name in ("journal", "attempts", "sweeps", "bindings")
    }
