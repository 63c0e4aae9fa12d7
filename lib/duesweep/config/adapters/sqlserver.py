"""SQL Server: the transport's store, MSMQ's, SQL persistence's, queue tables, and their checks."""

from collections.abc import Sequence

from duesweep.config.adapters import Needs
from duesweep.config.adapters.sql import SqlAdapter
from duesweep.core.address import SqlServerAddresses
from duesweep.drivers.sqlserver.dsn import OdbcDsn, database_of
from duesweep.queues.sqlserver import COLUMNS, SqlServerQueue
from duesweep.stores.kinds import SQL_SERVER_KINDS
from duesweep.stores.sqlserver import SQL_SERVER


class SqlServerAdapter(SqlAdapter):
    """Its addresses may name another database of the server."""

    dialect, kinds, tables, columns = SQL_SERVER, SQL_SERVER_KINDS, SqlServerQueue, COLUMNS

    def database_of(self, dsn: str) -> str:
        return database_of(dsn)

    def addresses_in(self, endpoint: str, schema: str, dsn: str) -> SqlServerAddresses:
        return SqlServerAddresses(endpoint, schema, database_of(dsn))

    def needs(self, dsns: Sequence[str]) -> Needs:
        """Pyodbc, and the ODBC drivers that the dsns name."""
        drivers = [OdbcDsn.parse(dsn).pairs for dsn in dsns]
        named = {p.get("driver", "") for p in drivers if not {"dsn", "filedsn"} & set(p)}
        return Needs(["pyodbc"], sorted(named))


ADAPTER = SqlServerAdapter()
