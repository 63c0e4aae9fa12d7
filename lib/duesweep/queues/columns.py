"""The columns of a queue table, each with its allowed types; an empty set allows any type."""

from duesweep.checks.tables import Columns

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
