"""Where a store on SQL Server is: what its sessions need to know of it."""

from dataclasses import dataclass, field

from duesweep.core.address import SqlServerAddresses, SqlServerTable
from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Timeouts
from duesweep.stores.relational.wanted import JOURNAL_TABLES
from duesweep.stores.sqlserver.kinds import TRANSPORT, SqlServerTableKind


@dataclass(frozen=True, slots=True)
class SqlServerLocation:
    """A delayed table, the first of `candidates` that is there, with duesweep's own tables in the
    same schema. `batch_bytes` bounds what a claim reads.
    """

    dsn: str = field(repr=False)
    source: str
    candidates: tuple[SqlServerTable, ...]
    addresses: SqlServerAddresses
    batch_bytes: int
    jdbc_url: str | None = None
    kind: SqlServerTableKind = TRANSPORT
    timeouts: Timeouts = DEFAULT_TIMEOUTS

    @property
    def own_queue(self) -> str:
        """The endpoint's own queue: its table's address, or its name where that is not beside the
        store.
        """
        addresses = self.addresses
        return str(addresses.own_queue) if self.kind.has_own_queue else addresses.endpoint

    def names(self, delayed: SqlServerTable) -> dict[str, str]:
        """The names that statements have in braces."""
        tables = {"delayed": delayed, **journal_tables(delayed)}
        return {name: table.sql for name, table in tables.items()} | self.kind.names


def journal_tables(beside: SqlServerTable) -> dict[str, SqlServerTable]:
    """duesweep's own tables beside a store."""
    return {
        name: SqlServerTable(beside.catalog, beside.schema, f"duesweep_{name}")
        for name in JOURNAL_TABLES
    }
