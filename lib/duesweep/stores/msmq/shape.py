"""The columns of the MSMQ transport's delayed message store."""

from duesweep.stores.sqlserver.location import SqlServerShape

MSMQ_SHAPE = SqlServerShape(
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
# The documentation names the first, the code of the transport's later versions takes the second.
TABLE_SUFFIXES = (".delayed", ".timeouts")
