"""Where a store on SQL Server is: what its sessions need to know of it."""

from dataclasses import dataclass, field

from duesweep.address import SqlServerAddresses, SqlServerTable
from duesweep.stores.relational.delayed import DelayedShape
from duesweep.stores.relational.statements import JOURNAL_TABLES
from duesweep.timeouts import DEFAULT_TIMEOUTS, Timeouts


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlServerShape(DelayedShape):
    """With the name of its index on Due, and the lowest key that there can be. The alias of the
    delayed table is `m` where a name needs one.
    """

    index: str
    lowest_key: str


TRANSPORT_SHAPE = SqlServerShape(
    columns={
        "RowVersion": "bigint",
        "Headers": "nvarchar",
        "Body": "varbinary",
        "Due": "datetime",
    },
    due="Due",
    index="Index_Due",
    lowest_key=str(-(2**63)),
    names={
        "due": "[Due]",
        "key": "[RowVersion]",
        "key_type": "bigint",
        "key_text": "CONVERT(nvarchar(250), m.[RowVersion])",
        "collate": "",
        "body": "[Body]",
        "destination": "CONVERT(nvarchar(200), NULL)",
        "retry_count": "0",
    },
)


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
    shape: SqlServerShape = TRANSPORT_SHAPE
    timeouts: Timeouts = DEFAULT_TIMEOUTS

    @property
    def own_queue(self) -> str:
        """The address of the endpoint's own queue table."""
        return str(self.addresses.own_queue)

    def names(self, delayed: SqlServerTable) -> dict[str, str]:
        """The names that statements have in braces."""
        tables = {"delayed": delayed, **journal_tables(delayed)}
        return {name: table.sql for name, table in tables.items()} | self.shape.names


def journal_tables(beside: SqlServerTable) -> dict[str, SqlServerTable]:
    """duesweep's own tables beside a store."""
    return {
        name: SqlServerTable(beside.catalog, beside.schema, f"duesweep_{name}")
        for name in JOURNAL_TABLES
    }


def name_literal(table: SqlServerTable) -> str:
    """The table's quoted name, for the inside of an N'...' literal."""
    return table.sql.replace("'", "''")
