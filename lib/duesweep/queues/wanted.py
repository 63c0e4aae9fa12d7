"""What is expected of queue tables: what delivery needs, and the transport's indexes."""

from duesweep.checks.tables import (
    POSTGRESQL_QUEUE_RIGHTS,
    SQL_SERVER_QUEUE_RIGHTS,
    WantedIndex,
    WantedTable,
)
from duesweep.core.address import SqlServerTable, TableName
from duesweep.queues.columns import POSTGRESQL, SQL_SERVER

OWN, ERROR = "endpoint's own queue", "error queue"
WAITED_FOR, ROUTED = "queue that messages wait for", "queue that a [[route]] names"
_SETUP = "run the command `setup`, or correct the setting that names it"
_ELSEWHERE = (
    "let its endpoint create it (NServiceBus's installers do), or add or correct a [[route]] that "
    "says which queue is meant"
)
_CREATE = {OWN: _SETUP, ERROR: _SETUP, WAITED_FOR: _ELSEWHERE, ROUTED: _ELSEWHERE}


def postgresql_queue(role: str, table: TableName) -> WantedTable:
    """A queue table of the PostgreSQL transport."""
    return WantedTable(
        role=role,
        name=str(table),
        columns=POSTGRESQL,
        rights=POSTGRESQL_QUEUE_RIGHTS,
        create=_CREATE[role],
    )


def sqlserver_queue(role: str, table: SqlServerTable) -> WantedTable:
    """A queue table of the SQL Server transport."""
    name = table.sql
    return WantedTable(
        role=role,
        name=name,
        columns=SQL_SERVER,
        rights=SQL_SERVER_QUEUE_RIGHTS,
        create=_CREATE[role],
        unicode="Headers",
        indexes=(
            WantedIndex(
                "Expires",
                "removing what has expired reads the whole queue",
                f"CREATE NONCLUSTERED INDEX [Index_Expires] ON {name} ([Expires]) INCLUDE ([Id], "
                "[RowVersion]) WHERE [Expires] IS NOT NULL",
                partial=True,
            ),
            WantedIndex(
                "RowVersion",
                "its receiver looks for the oldest message in the whole queue",
                f"CREATE NONCLUSTERED INDEX [Index_RowVersion] ON {name} ([RowVersion] ASC)",
            ),
        ),
    )
