"""Where a PostgreSQL store is: what its sessions need to know of it."""

from dataclasses import dataclass, field

from duesweep.address import PostgreSqlAddresses, TableName
from duesweep.stores.relational.delayed import DelayedShape
from duesweep.timeouts import DEFAULT_TIMEOUTS, Timeouts


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgreSqlShape(DelayedShape):
    """`time_zone` is the one whose clock Due shows; None: that of the writers' sessions. The alias
    of the delayed table is `d` where a name needs one.
    """

    time_zone: str | None = None


TRANSPORT_SHAPE = PostgreSqlShape(
    columns={
        "id": "uuid",
        "headers": "text",
        "body": "bytea",
        "due": "timestamp with time zone",
    },
    due="due",
    names={
        "id": "id",
        "headers": "headers",
        "body": "body",
        "due": "due",
        "due_type": "timestamptz",
        # From an instant to what the column holds, and back.
        "utc": "",
        "destination": "NULL",
    },
)


@dataclass(frozen=True, slots=True)
class PostgreSqlLocation:
    """A delayed table, with duesweep's own tables in the same schema."""

    dsn: str = field(repr=False)
    source: str
    delayed: TableName
    addresses: PostgreSqlAddresses
    writer_time_zone: str | None = None
    shape: PostgreSqlShape = TRANSPORT_SHAPE
    timeouts: Timeouts = DEFAULT_TIMEOUTS

    @property
    def tables(self) -> dict[str, TableName]:
        """The delayed table and duesweep's own."""
        return {"delayed": self.delayed, **journal_tables(self.delayed.schema)}

    @property
    def names(self) -> dict[str, str]:
        """The names that statements have in braces."""
        return {name: str(table) for name, table in self.tables.items()} | self.shape.names

    @property
    def own_queue(self) -> str:
        """The endpoint's own queue table."""
        return str(self.addresses.own_queue)


def journal_tables(schema: str) -> dict[str, TableName]:
    """duesweep's own tables beside a store in `schema`."""
    return {
        name: TableName(schema, f"duesweep_{name}")
        for name in ("journal", "attempts", "sweeps", "bindings")
    }
