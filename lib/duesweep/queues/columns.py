"""The columns that make a table a queue table, each with the types that serve; none: any does."""

from collections.abc import Mapping

Columns = Mapping[str, frozenset[str]]

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
