"""Are the tables of a PostgreSQL store there, of the right shape, and ours to use?"""

from duesweep.address import TableName
from duesweep.drivers.postgresql import Connection
from duesweep.errors import ConfigError

_COLUMNS = {
    "delayed": {"id uuid", "headers text", "body bytea", "due timestamp with time zone"},
    "journal": {"sweep_id uuid", "kind text", "outcomes bytea", "lateness_ms bigint[]"},
    "attempts": {"source text", "message_key uuid", "attempts integer"},
    "sweeps": {"sweep_id uuid", "settle_id uuid", "planned bigint[]"},
    "bindings": {"source text", "ledger_id uuid"},
}
# Locking a row takes the right to change it.
_RIGHTS = ["SELECT", "INSERT", "UPDATE", "DELETE"]
_DELAYED_RIGHTS = ["SELECT", "UPDATE", "DELETE"]


def check_tables(connection: Connection, tables: dict[str, TableName]) -> None:
    """Raise `ConfigError` for the first table that is missing, foreign or closed to this role."""
    for name, table in tables.items():
        rights = _DELAYED_RIGHTS if name == "delayed" else _RIGHTS
        rows = connection.rows(
            "describe_table", {}, schema=table.schema, table=table.table, rights=rights
        )
        if not rows:
            raise ConfigError(_missing(name, table))
        absent = _COLUMNS[name] - set(rows[0].columns)
        if absent:
            raise ConfigError(
                f"{table} is not the {name} table that is expected: it lacks "
                f"{', '.join(sorted(absent))}; check store.schema and store.delayed_table"
            )
        if rows[0].missing_rights:
            raise ConfigError(
                f"The sweeper's role lacks {', '.join(rows[0].missing_rights)} on {table}; "
                f"grant them (and USAGE on its schema) to it"
            )


def _missing(name: str, table: TableName) -> str:
    if name == "delayed":
        return (
            f"There is no delayed table {table}; check store.endpoint, store.schema and "
            "store.delayed_table, or create it with `duesweep setup`"
        )
    return f"There is no table {table}, which keeps duesweep's {name}; run `duesweep setup` once"
