"""SQL Server: the transport's store, MSMQ's, SQL persistence's, queue tables, and their checks."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from duesweep.config import Config
from duesweep.config.adapters import Needs, QueueConnection, Service, parse_all, timeouts_of
from duesweep.core.address import SqlServerAddresses, SqlServerTable
from duesweep.core.errors import ConfigError
from duesweep.drivers.sqlserver.dsn import OdbcDsn, database_of
from duesweep.queues.sqlserver import SqlServerQueue, sqlserver_queue
from duesweep.stores.checks_sqlserver import examine
from duesweep.stores.kinds import SQL_SERVER_KINDS
from duesweep.stores.setup import SqlSetup
from duesweep.stores.sqlserver import SQL_SERVER
from duesweep.stores.store import SqlStore

if TYPE_CHECKING:
    from duesweep.queues.transport.session import Transport


def store(config: Config) -> SqlStore:
    """The store of a kind of table on SQL Server."""
    settings = config.store
    dsn = settings.dsn.get_secret_value()
    addresses = SqlServerAddresses(settings.endpoint, settings.schema_name, database_of(dsn))
    kind = SQL_SERVER_KINDS[settings.kind]
    names = kind.table_names(settings.endpoint, settings.table_prefix)
    if settings.delayed_table is not None:
        names = [settings.delayed_table]
    catalog = addresses.default_catalog
    candidates = tuple(SqlServerTable(catalog, settings.schema_name, name) for name in names)
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


def queue(connection: QueueConnection) -> SqlServerQueue:
    """The queue tables of a server."""
    store = connection.config.store
    if connection.dsn is None and store.dialect == "postgresql":
        raise ConfigError(
            f"{connection.setting} is of kind sqlserver, but the store is in PostgreSQL",
            advice="give it a dsn",
        )
    return SqlServerQueue(
        _addresses(connection),
        store.dsn.get_secret_value(),
        connection.dsn.get_secret_value() if connection.dsn else None,
        setting=connection.setting,
        holds_own_queue=not connection.is_routed and store.knows_own_queue,
        timeouts=connection.timeouts,
    )


def queue_tables(
    connection: QueueConnection, addresses: Sequence[str | None]
) -> tuple[SqlServerTable, ...]:
    """The tables of queues on a connection."""
    return parse_all(_addresses(connection), addresses)


def setup_step(connection: QueueConnection, queues: tuple[SqlServerTable, ...]) -> SqlSetup:
    """The step that creates these queues without a store's tables."""
    return SqlSetup(
        dialect=SQL_SERVER,
        dsn=connection.server_dsn,
        setting=connection.server_setting,
        queues=queues,
        timeouts=connection.timeouts,
        readable=queues if connection.section.readable_body else (),
    )


def service(
    config: Config,
    connection: QueueConnection | None,
    queues: Callable[[], Sequence[tuple[str, SqlServerTable]]],
) -> Service:
    """The store's database, or a connection's own, with these queues, for the doctor."""
    setting = connection.server_setting if connection else "store.dsn"
    findings = partial(
        examine,
        connection.server_dsn if connection else config.store.dsn.get_secret_value(),
        setting,
        lambda: [sqlserver_queue(role, table) for role, table in queues()],
        store=store(config) if connection is None else None,
        timeouts=timeouts_of(config),
    )
    return Service(setting, findings)


def needs(dsns: Sequence[str]) -> Needs:
    """What executors have to load: pyodbc, and the ODBC drivers that the dsns name."""
    drivers = [OdbcDsn.parse(dsn).pairs for dsn in dsns]
    named = {pairs.get("driver", "") for pairs in drivers if not {"dsn", "filedsn"} & set(pairs)}
    return Needs(["pyodbc"], sorted(named))


def transport(connection: QueueConnection) -> "Transport":
    """The queue tables, with the delayed table if it is beside them."""
    from duesweep.queues.transport.sqlserver import sqlserver_transport  # noqa: PLC0415 - no sweep

    tables = queue(connection)
    is_beside = connection.dsn is None and connection.config.store.kind == "sqlserver"
    delayed = store(connection.config).candidates[0] if is_beside else None
    return sqlserver_transport(
        connection.server_dsn, tables.addresses, delayed, timeouts=tables.timeouts
    )


def _addresses(connection: QueueConnection) -> SqlServerAddresses:
    endpoint, schema = connection.config.store.endpoint, connection.schema_in("sqlserver")
    return SqlServerAddresses(endpoint, schema, database_of(connection.server_dsn))
