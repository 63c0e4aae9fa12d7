"""Creates the index on Due where a delayed table lacks it, as the transports' installers do."""

from collections.abc import Iterator

from duesweep.core.address import SqlServerTable, bracket_name
from duesweep.drivers.sqlserver.binding import creation
from duesweep.drivers.sqlserver.session import SqlServerSession
from duesweep.errors import Problem, StoreError
from duesweep.stores.checks_sqlserver import delayed_index_notices
from duesweep.stores.dialect import Location
from duesweep.stores.installed import IndexCreated
from duesweep.stores.kinds import TableKind


def due_index_script(kind: TableKind, delayed: SqlServerTable) -> str:
    """The statement that creates the index, unless there is one."""
    columns = {"due": kind.names["due"], "index": bracket_name(kind.index)}
    return creation("create_due_index", columns, delayed=delayed)


def create_due_index(
    connection: SqlServerSession, store: Location, delayed: SqlServerTable
) -> Iterator[IndexCreated | Problem]:
    """Create the index if it is missing. Yields what was done; where this user may not create it,
    why not, and what to do: sweeps work without it.
    """
    if store.kind.create is None:
        return
    missing = delayed_index_notices(connection, store.kind, delayed)
    if not missing:
        return
    rows = connection.row("estimate_rows", table=delayed.sql).rows
    try:
        with connection.wait_longer(store.timeouts.plan_seconds(int(rows))):
            connection.script(due_index_script(store.kind, delayed))
    except StoreError as error:
        if error.transient:
            raise
        (lacking,) = missing
        yield Problem(
            f"{lacking.text}. It cannot be created: {error.text}",
            f"have the table's owner {lacking.advice}",
        )
    else:
        yield IndexCreated(store.kind.index, delayed.sql)
