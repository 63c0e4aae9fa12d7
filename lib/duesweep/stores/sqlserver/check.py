"""Whether a session on SQL Server can sweep: its database and the store's tables."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from duesweep.checks.tables import index_notices
from duesweep.core.address import SqlServerTable
from duesweep.drivers.sqlserver.catalog import (
    find_table,
    missing_rights,
    similar_tables,
    with_indexes,
)
from duesweep.drivers.sqlserver.session import SqlServerSession
from duesweep.errors import ConfigError, Problem, StoreError
from duesweep.stores.relational.check import refuse_wrong_table
from duesweep.stores.sqlserver.kinds import SqlServerTableKind
from duesweep.stores.sqlserver.wanted import wanted_tables


def check_tables(
    connection: SqlServerSession, kind: SqlServerTableKind, delayed: SqlServerTable
) -> None:
    """Raise `ConfigError` for a session that cannot sweep, or for the first table that is missing,
    of another shape, or closed to this user.
    """
    check_session(connection, "store.dsn")
    for table, wanted in wanted_tables(kind, delayed):
        found = find_table(connection, table)
        if found is not None:
            lacking = missing_rights(connection, table, wanted.rights)
            found = replace(found, missing_rights=lacking)
        refuse_wrong_table(wanted, found, partial(similar_tables, connection, table))


def delayed_index_notices(
    connection: SqlServerSession, kind: SqlServerTableKind, delayed: SqlServerTable
) -> Sequence[Problem]:
    """What is missing of the delayed table's indexes: without them a sweep works, but slowly."""
    found = find_table(connection, delayed)
    if found is None:
        return ()
    wanted = dict(wanted_tables(kind, delayed))[delayed]
    return index_notices(wanted, with_indexes(connection, delayed, found))


def check_session(connection: SqlServerSession, setting: str) -> None:
    """Raise `ConfigError` for a database, which `setting` names, that is read-only or too old."""
    session = connection.row("describe_session")
    if session.updateability == "READ_ONLY":
        raise ConfigError(
            f"The database that {setting} names is read-only",
            advice="connect to the primary replica",
        )
    try:
        connection.rows("read_lists", words="1", numbers="[1]")
    except StoreError as error:
        if error.transient:
            raise
        raise ConfigError(
            f"The database that {setting} names cannot read lists and JSON ({error})",
            advice="use SQL Server 2017 or newer, and a compatibility level of 130 or more",
        ) from error
