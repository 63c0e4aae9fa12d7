"""The kinds of delayed table on SQL Server."""

from dataclasses import dataclass
from uuid import UUID

from duesweep.stores.relational.kinds import TableKind
from duesweep.stores.sqlpersistence.timeouts import SETTINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlServerTableKind(TableKind):
    """With the name of its index on Due, and the lowest key that there can be. The alias of the
    delayed table is `m` where a name needs one.
    """

    index: str
    lowest_key: str


TRANSPORT = SqlServerTableKind(
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

MSMQ = SqlServerTableKind(
    columns={
        "Id": "nvarchar",
        "Destination": "nvarchar",
        "State": "varbinary",
        "Time": "datetime",
        "Headers": "varbinary",
        "RetryCount": "int",
    },
    due="Time",
    create="create_msmq_delayed",
    index="Index_Time",
    lowest_key="",
    may_lack_due=True,
    has_destination=True,
    has_own_queue=False,
    names={
        "due": "[Time]",
        "key": "[Id]",
        "key_type": "nvarchar(250)",
        "key_text": "CONVERT(nvarchar(250), m.[Id])",
        # Whatever the column's own is.
        "collate": " COLLATE DATABASE_DEFAULT",
        "body": "[State]",
        "destination": "m.[Destination]",
        "retry_count": "m.[RetryCount]",
    },
)

SQL_PERSISTENCE = SqlServerTableKind(
    columns={
        "Id": "uniqueidentifier",
        "Destination": "nvarchar",
        "SagaId": "uniqueidentifier",
        "State": "varbinary",
        "Time": "datetime",
        "Headers": "nvarchar",
        "PersistenceVersion": "varchar",
    },
    due="Time",
    create=None,
    settings=SETTINGS,
    index="Index_Time",
    lowest_key=str(UUID(int=0)),
    may_lack_due=True,
    has_destination=True,
    has_own_queue=False,
    names={
        "due": "[Time]",
        "key": "[Id]",
        "key_type": "uniqueidentifier",
        # The server writes it in capitals, nobody else does.
        "key_text": "LOWER(CONVERT(nvarchar(250), m.[Id]))",
        "collate": "",
        "body": "[State]",
        "destination": "m.[Destination]",
        "retry_count": "0",
    },
)
