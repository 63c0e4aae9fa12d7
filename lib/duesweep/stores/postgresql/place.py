"""Where a PostgreSQL store is: what its sessions need to know of it."""

from dataclasses import dataclass, field

from duesweep.address import PostgreSqlAddresses, TableName


@dataclass(frozen=True, slots=True)
class PostgreSqlPlace:
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


def journal_tables(schema: str) -> dict[str, TableName]:
    """duesweep's own tables beside a store in `schema`."""
    return {
        name: TableName(schema, f"duesweep_{name}")
        for name in ("journal", "attempts", "sweeps", "bindings")
    }
