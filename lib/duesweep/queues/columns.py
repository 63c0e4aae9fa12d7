"""The transports' tables: the columns of a queue, each with its allowed types (an empty set allows
any type), and the name of the table of subscriptions.
"""

from duesweep.checks.tables import Columns

# The default, in the default schema. All endpoints of a system use the same table.
SUBSCRIPTION_TABLE = "SubscriptionRouting"

_ANY: frozenset[str] = frozenset()

POSTGRESQL: Columns = {
    "id": frozenset({"uuid"}),
    "headers": frozenset({"text"}),
    "body": frozenset({"bytea"}),
    "expires": _ANY,
    # int, or bigint after its 32 bits were used up.
    "seq": _ANY,
}
SQL_SERVER: Columns = {
    "Id": frozenset({"uniqueidentifier"}),
    "Headers": frozenset({"nvarchar", "varchar", "ntext"}),
    "Body": frozenset({"varbinary", "image"}),
    "Expires": frozenset({"datetime", "datetime2"}),
    "RowVersion": frozenset({"bigint", "int"}),
}
# Columns that both transports have, in lower case.
SHARED_NAMES = {name.lower() for name in POSTGRESQL} & {name.lower() for name in SQL_SERVER}
