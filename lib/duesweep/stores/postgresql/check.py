"""Whether a session on PostgreSQL can sweep: its database, time zone and the store's tables."""

from collections.abc import Iterable
from functools import partial

from duesweep.checks.tables import WantedTable
from duesweep.core.address import TableName
from duesweep.drivers.postgresql.catalog import find_table, similar_tables
from duesweep.drivers.postgresql.session import PostgreSqlSession
from duesweep.errors import ConfigError, StoreError
from duesweep.stores.relational.check import refuse_wrong_table


def check_tables(
    connection: PostgreSqlSession,
    tables: Iterable[tuple[TableName, WantedTable]],
    writer_time_zone: str | None = None,
) -> None:
    """Raise `ConfigError` for a session that cannot sweep, or for the first table that is missing,
    of another shape, or closed to this role.
    """
    check_session(connection, "store.dsn")
    if writer_time_zone is not None:
        _check_zone(connection, writer_time_zone)
    for table, wanted in tables:
        found = find_table(connection, table, wanted.rights)
        refuse_wrong_table(wanted, found, partial(similar_tables, connection, table))


def check_session(connection: PostgreSqlSession, setting: str) -> None:
    """Raise `ConfigError` for a database that takes no writes, or whose text has no encoding;
    `setting` is the one that names it.
    """
    session = connection.row("describe_session")
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


def _check_zone(connection: PostgreSqlSession, zone: str) -> None:
    try:
        with connection.transaction():
            connection.row("set_zone", zone=zone)
    except StoreError as error:
        if error.transient:
            raise
        raise ConfigError(
            f"store.writer_time_zone is {zone!r}, which PostgreSQL does not know",
            advice="give a name out of pg_timezone_names",
        ) from error
