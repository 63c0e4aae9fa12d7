"""SQL Server: the transport's store, MSMQ's, SQL persistence's, queue tables, and their checks."""

from collections.abc import Sequence

from duesweep.config import Config
from duesweep.config.adapters import Needs, QueueConnection, named_by, timeouts_of
from duesweep.config.adapters.sql import SqlAdapter
from duesweep.core.address import SqlServerAddresses, SqlServerTable
from duesweep.drivers.sqlserver.dsn import OdbcDsn, database_of
from duesweep.queues.sqlserver import COLUMNS, SqlServerQueue
from duesweep.stores.kinds import SQL_SERVER_KINDS
from duesweep.stores.sqlserver import SQL_SERVER
from duesweep.stores.store import SqlStore


class SqlServerAdapter(SqlAdapter):
    """A store has candidates for its delayed table: an older version's has another name."""

    dialect, tables, columns = SQL_SERVER, SqlServerQueue, COLUMNS

    def addresses(self, connection: QueueConnection) -> SqlServerAddresses:
        endpoint, schema = connection.config.store.endpoint, connection.schema_in("sqlserver")
        with named_by(f"store.endpoint or {connection.setting}.schema"):
            return SqlServerAddresses(endpoint, schema, database_of(connection.server_dsn))

    def store(self, config: Config) -> SqlStore:
        settings = config.store
        dsn = settings.dsn.get_secret_value()
        with named_by("store.endpoint or store.schema"):
            addresses = SqlServerAddresses(
                settings.endpoint, settings.schema_name, database_of(dsn)
            )
        kind = SQL_SERVER_KINDS[settings.kind]
        names = kind.table_names(settings.endpoint, settings.table_prefix)
        if settings.delayed_table is not None:
            names = [settings.delayed_table]
        catalog = addresses.default_catalog
        named = "endpoint" if settings.delayed_table is None else "delayed_table"
        with named_by(f"store.schema or store.{named}"):
            candidates = tuple(SqlServerTable(catalog, settings.schema_name, n) for n in names)
        first = candidates[0]
        return SqlStore(
            dialect=SQL_SERVER,
            dsn=dsn,
            source=settings.name or f"{first.catalog}/{first.schema}.{first.table}",
            candidates=candidates,
            addresses=addresses,
            batch_bytes=config.sweep.batch_bytes,
            kind=kind,
            jdbc_url=settings.jdbc_url.get_secret_value() if settings.jdbc_url else None,
            timeouts=timeouts_of(config),
        )

    def needs(self, dsns: Sequence[str]) -> Needs:
        """Pyodbc, and the ODBC drivers that the dsns name."""
        drivers = [OdbcDsn.parse(dsn).pairs for dsn in dsns]
        named = {p.get("driver", "") for p in drivers if not {"dsn", "filedsn"} & set(p)}
        return Needs(["pyodbc"], sorted(named))


ADAPTER = SqlServerAdapter()
