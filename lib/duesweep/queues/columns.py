"""The columns that make a table a queue table."""

from duesweep.checks.tables import Columns

_ANY: frozenset[str] = frozenset()

POSTGRESQL: Columns = {
    "id": frozenset({"uuid"}),
    "headers": frozenset({"text"}),
    "body": frozenset({"bytea"}),
    "expires": _ANY,
    # Widened to bigint where 32 bits are used up.
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
