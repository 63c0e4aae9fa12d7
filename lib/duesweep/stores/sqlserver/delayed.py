"""Which of the tables that it may be is the delayed table."""

from duesweep.core.address import SqlServerTable
from duesweep.drivers.sqlserver.catalog import is_there
from duesweep.drivers.sqlserver.session import SqlServerSession
from duesweep.errors import ConfigError
from duesweep.stores.sqlserver.location import SqlServerLocation


def find_delayed(connection: SqlServerSession, location: SqlServerLocation) -> SqlServerTable:
    """The only candidate, or the one that exists.

    Raises `ConfigError` if two exist, because each may hold messages.
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
