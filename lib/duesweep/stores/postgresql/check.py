"""Are the tables of a PostgreSQL store there, of the right shape, and ours to use?"""

from typing import Any

from duesweep.core.address import TableName
from duesweep.drivers.postgresql import PostgreSqlConnection
from duesweep.errors import ConfigError, StoreError
from duesweep.stores.postgresql.kinds import TRANSPORT
from duesweep.stores.relational.kinds import TableKind
from duesweep.stores.relational.shapes import RESHAPE

_COLUMNS = {
    "journal": {"sweep_id uuid", "kind text", "outcomes bytea", "given bigint"},
    "attempts": {"source text", "message_key uuid", "attempts integer"},
    "sweeps": {"sweep_id uuid", "reason text", "planned bigint[]", "over_limit bigint"},
    "bindings": {"source text", "delayed text", "ledger_id uuid"},
}
# Locking a row takes the right to change it.
_RIGHTS = ["SELECT", "INSERT", "UPDATE", "DELETE"]
_DELAYED_RIGHTS = ["SELECT", "UPDATE", "DELETE"]
# A foreign table knows neither SKIP LOCKED nor a common transaction, a view no rows of its own.
_ORDINARY, _PARTITIONED = "r", "p"


def check_tables(
    connection: PostgreSqlConnection,
    tables: dict[str, TableName],
    writer_time_zone: str | None = None,
    kind: TableKind = TRANSPORT,
) -> None:
    """Raise `ConfigError` for a session that cannot sweep, and for the first table that is missing,
    foreign or closed to this role.
    """
    check_session(connection, "store.dsn")
    if writer_time_zone is not None:
        _check_zone(connection, writer_time_zone)
    for name, table in tables.items():
        rights = _DELAYED_RIGHTS if name == "delayed" else _RIGHTS
        rows = connection.rows(
            "describe_table", {}, schema=table.schema, table=table.table, rights=rights
        )
        if not rows:
            raise _missing(name, table, kind)
        columns = _typed(kind) if name == "delayed" else _COLUMNS[name]
        _check_table(name, table, columns, rows[0])


def check_session(connection: PostgreSqlConnection, setting: str) -> None:
    """Raise `ConfigError` for a database that takes no writes, or whose text has no encoding;
    `setting` is the one that names it.
    """
    session = connection.row("describe_session", {})
    if session.is_read_only:
        raise ConfigError(
            f"The session that {setting} opens is read-only",
            advice="connect to the primary server, with a role that may write",
        )
    if session.encoding == "SQL_ASCII":
        raise ConfigError(
            f"The database that {setting} names is encoded in SQL_ASCII, so its headers may be no "
            "text at all",
            advice="move the endpoint to a database encoded in UTF8",
        )


def _check_zone(connection: PostgreSqlConnection, zone: str) -> None:
    try:
        with connection.transaction():
            connection.row("set_zone", {}, zone=zone)
    except StoreError as error:
        if error.transient:
            raise
        raise ConfigError(
            f"store.writer_time_zone is {zone!r}, which PostgreSQL does not know",
            advice="give a name out of pg_timezone_names",
        ) from error


def _typed(kind: TableKind) -> set[str]:
    return {f"{name} {column_type}" for name, column_type in kind.columns.items()}


def _check_table(name: str, table: TableName, columns: set[str], found: Any) -> None:
    if found.kind not in {_ORDINARY, _PARTITIONED}:
        raise ConfigError(
            f"{table} cannot be the {name} table: it is a view, a foreign table or the like, whose "
            "rows cannot be locked",
            advice="connect to the database that has the table itself",
        )
    absent = columns - set(found.columns)
    if absent:
        advice = "check store.schema and store.delayed_table" if name == "delayed" else RESHAPE
        raise ConfigError(
            f"{table} is not the {name} table that is expected: it lacks "
            f"{', '.join(sorted(absent))}",
            advice=advice,
        )
    if found.missing_rights:
        raise ConfigError(
            f"The sweeper's role lacks {', '.join(found.missing_rights)} on {table}",
            advice="grant them (and USAGE on its schema) to it",
        )


def _missing(name: str, table: TableName, kind: TableKind) -> ConfigError:
    if name == "delayed":
        return ConfigError(f"There is no delayed table {table}", advice=kind.advice)
    return ConfigError(
        f"There is no table {table}, which keeps duesweep's {name}",
        advice="run the command `setup` once",
    )
