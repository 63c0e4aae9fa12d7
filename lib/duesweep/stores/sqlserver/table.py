"""Which delayed table it is, and whether it and the journal are ours to use."""

from collections.abc import Sequence

from duesweep.core.address import SqlServerTable, bracket_name
from duesweep.drivers.sqlserver import SqlServerConnection
from duesweep.errors import ConfigError, StoreError
from duesweep.stores.relational.shapes import RESHAPE
from duesweep.stores.sqlserver.location import SqlServerLocation, journal_tables

_COLUMNS = {
    "journal": {"sweep_id": "uniqueidentifier", "kind": "varchar", "given": "bigint"},
    "attempts": {"source": "nvarchar", "message_key": "nvarchar", "due_at": "datetime2"},
    "sweeps": {
        "sweep_id": "uniqueidentifier",
        "reason": "nvarchar",
        "planned": "nvarchar",
        "over_limit": "bigint",
    },
    "bindings": {"source": "nvarchar", "ledger_id": "uniqueidentifier"},
}
_RIGHTS = ["SELECT", "INSERT", "UPDATE", "DELETE"]
# A lock for an update takes the right to one.
_DELAYED_RIGHTS = ["SELECT", "UPDATE", "DELETE"]


def find_delayed(connection: SqlServerConnection, location: SqlServerLocation) -> SqlServerTable:
    """The delayed table: the only candidate, or the one that is there.

    Raises `ConfigError` where there are two: each may hold messages.
    """
    if len(location.candidates) == 1:
        return location.candidates[0]
    found = [table for table in location.candidates if is_there(connection, table)]
    if len(found) > 1:
        raise ConfigError(
            f"There are both {found[0].sql} and {found[1].sql}",
            advice=(
                "set store.delayed_table to the one that the endpoint stores its delayed "
                "messages in"
            ),
        )
    return found[0] if found else location.candidates[0]


def is_there(connection: SqlServerConnection, table: SqlServerTable) -> bool:
    """Whether there is a table of this name."""
    return bool(connection.row("find_table", {}, name=table.sql).found)


def check_tables(
    connection: SqlServerConnection, location: SqlServerLocation, delayed: SqlServerTable
) -> None:
    """Raise `ConfigError` for a session that cannot sweep, and for the first table that is missing,
    foreign or closed to this user.
    """
    check_session(connection, "store.dsn")
    missing = ConfigError(f"There is no delayed table {delayed.sql}", advice=location.kind.advice)
    _check_table(connection, delayed, location.kind.columns, _DELAYED_RIGHTS, missing)
    for name, table in journal_tables(delayed).items():
        missing = ConfigError(
            f"There is no table {table.sql}, which duesweep keeps",
            advice="run the command `setup` once",
        )
        _check_table(connection, table, _COLUMNS[name], _RIGHTS, missing)


def check_session(connection: SqlServerConnection, setting: str) -> None:
    """Raise `ConfigError` for a database, which `setting` names, that is read-only or too old."""
    session = connection.row("describe_session", {})
    if session.updateability == "READ_ONLY":
        raise ConfigError(
            f"The database that {setting} names is read-only",
            advice="connect to the primary replica",
        )
    try:
        connection.rows("read_lists", {}, words="1", numbers="[1]")
    except StoreError as error:
        if error.transient:
            raise
        raise ConfigError(
            f"The database that {setting} names cannot read lists and JSON ({error})",
            advice=("use SQL Server 2017 or newer, and a compatibility level of 130 or more"),
        ) from error


def columns_of(connection: SqlServerConnection, table: SqlServerTable) -> dict[str, str]:
    """The columns and their types of a table; none where there is no such table."""
    names = {"catalog": bracket_name(table.catalog)}
    rows = connection.rows("describe_table", names, schema=table.schema, table=table.table)
    if any(row.kind != "BASE TABLE" for row in rows):
        raise ConfigError(
            f"{table.sql} is a view, whose rows cannot be locked", advice="name its table"
        )
    return {row.name: row.type for row in rows}


def missing_rights(
    connection: SqlServerConnection, table: SqlServerTable, rights: Sequence[str]
) -> Sequence[str]:
    """Those of `rights` that this user lacks on a table."""
    rows = connection.rows("describe_rights", {}, name=table.sql, rights=",".join(rights))
    return [row.name for row in rows if not row.is_granted]


def _check_table(
    connection: SqlServerConnection,
    table: SqlServerTable,
    wanted: dict[str, str],
    rights: Sequence[str],
    missing: ConfigError,
) -> None:
    found = columns_of(connection, table)
    if not found:
        raise missing
    absent = [name for name, kind in wanted.items() if found.get(name, "").lower() != kind]
    if absent:
        advice = "check store.kind, store.schema and store.delayed_table"
        raise ConfigError(
            f"{table.sql} is not the table that is expected: it lacks "
            f"{', '.join(f'{name} {wanted[name]}' for name in absent)}",
            advice=RESHAPE if wanted in _COLUMNS.values() else advice,
        )
    lacking = missing_rights(connection, table, rights)
    if lacking:
        raise ConfigError(
            f"The sweeper's user lacks {', '.join(lacking)} on {table.sql}",
            advice="grant them to it",
        )
