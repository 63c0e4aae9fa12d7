"""Where a PostgreSQL store is: what its sessions need to know of it."""

from dataclasses import dataclass, field

from duesweep.core.address import PostgreSqlAddresses, TableName
from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Timeouts
from duesweep.stores.postgresql.kinds import TRANSPORT, PostgreSqlTableKind
from duesweep.stores.relational.wanted import JOURNAL_TABLES


@dataclass(frozen=True, slots=True)
class PostgreSqlLocation:
    """A delayed table, with duesweep's own tables in the same schema."""

    dsn: str = field(repr=False)
    source: str
    delayed: TableName
    addresses: PostgreSqlAddresses
    writer_time_zone: str | None = None
    kind: PostgreSqlTableKind = TRANSPORT
    timeouts: Timeouts = DEFAULT_TIMEOUTS

    @property
    def tables(self) -> dict[str, TableName]:
        """The delayed table and duesweep's own."""
        return {"delayed": self.delayed, **journal_tables(self.delayed.schema)}

    @property
    def names(self) -> dict[str, str]:
        """The names that statements have in braces."""
        return {name: str(table) for name, table in self.tables.items()} | self.kind.names

    @property
    def own_queue(self) -> str:
        """The endpoint's own queue: its table, or its name where that is not beside the store."""
        addresses = self.addresses
        return str(addresses.own_queue) if self.kind.has_own_queue else addresses.endpoint


def journal_tables(schema: str) -> dict[str, TableName]:
    """duesweep's own tables beside a store in `schema`."""
    return {name: TableName(schema, f"duesweep_{name}") for name in JOURNAL_TABLES}
