"""Wiring of SQL Server: the transport's store, MSMQ's, SQL persistence's, and queue tables."""

from collections.abc import Sequence

from duesweep.config import Config
from duesweep.core.address import SqlServerAddresses, SqlServerTable
from duesweep.core.errors import ConfigError, MessageError
from duesweep.drivers.sqlserver.dsn import database_of
from duesweep.queues.sqlserver import SqlServerQueue
from duesweep.queues.tables import SUBSCRIPTION_TABLE
from duesweep.stores.base import Store
from duesweep.stores.kinds import SQL_SERVER_KINDS
from duesweep.stores.setup import SqlSetup
from duesweep.stores.sqlserver import SQL_SERVER
from duesweep.stores.store import SqlStore
from duesweep.wiring.dialects import QueueConnection, timeouts_of


def store(config: Config) -> SqlStore:
    """The store of a kind of table on SQL Server."""
    settings = config.store
    dsn = settings.dsn.get_secret_value()
    addresses = SqlServerAddresses(settings.endpoint, settings.schema_name, database_of(dsn))
    candidates = _candidates(config, addresses)
    first = candidates[0]
    return SqlStore(
        dialect=SQL_SERVER,
        dsn=dsn,
        source=settings.name or f"{first.catalog}/{first.schema}.{first.table}",
        candidates=candidates,
        addresses=addresses,
        batch_bytes=config.sweep.batch_bytes,
        kind=SQL_SERVER_KINDS[settings.kind],
        jdbc_url=settings.jdbc_url.get_secret_value() if settings.jdbc_url else None,
        timeouts=timeouts_of(config),
    )


def queue(connection: QueueConnection) -> SqlServerQueue:
    """The queue tables of a server."""
    config = connection.config
    if connection.dsn is None and config.store.dialect == "postgresql":
        raise ConfigError(
            f"{connection.setting} is of kind sqlserver, but the store is in PostgreSQL",
            advice="give it a dsn",
        )
    return SqlServerQueue(
        _addresses(connection),
        config.store.dsn.get_secret_value(),
        connection.dsn.get_secret_value() if connection.dsn else None,
        setting=connection.setting,
        holds_own_queue=not connection.is_routed and config.store.knows_own_queue,
        timeouts=timeouts_of(config),
    )


def holds(store: Store) -> bool:
    """Whether queues without a dsn can be in this store's transaction."""
    return isinstance(store, SqlStore) and store.dialect == SQL_SERVER


def queue_tables(
    connection: QueueConnection, addresses: Sequence[str | None]
) -> tuple[SqlServerTable, ...]:
    """The tables of queues on a connection."""
    grammar = _addresses(connection)
    try:
        return tuple(grammar.parse(address) for address in addresses)
    except MessageError as error:
        raise ConfigError(f"retry.error_queue: {error}", advice="correct the setting") from error


def store_step(
    config: Config, queues: tuple[SqlServerTable, ...], readable: tuple[SqlServerTable, ...]
) -> SqlSetup:
    """The step that creates the store's tables, and beside them the table of subscriptions and
    these queue tables, of which `readable` have readable bodies.
    """
    service = store(config)
    knows_transport = service.kind.has_own_queue
    return SqlSetup(
        dialect=SQL_SERVER,
        dsn=service.dsn,
        setting="store.dsn",
        queues=queues,
        store=service,
        timeouts=service.timeouts,
        subscriptions=service.addresses.parse(SUBSCRIPTION_TABLE) if knows_transport else None,
        readable=readable,
    )


def queue_step(connection: QueueConnection, queues: tuple[SqlServerTable, ...]) -> SqlSetup:
    """The step that creates these queues without a store's tables: on a connection of their own,
    or beside a custom store.
    """
    dsn = connection.dsn or connection.config.store.dsn
    setting = f"{connection.setting}.dsn" if connection.dsn else "store.dsn"
    return SqlSetup(
        dialect=SQL_SERVER,
        dsn=dsn.get_secret_value(),
        setting=setting,
        queues=queues,
        timeouts=timeouts_of(connection.config),
        readable=queues if connection.section.readable_body else (),
    )


def _candidates(config: Config, addresses: SqlServerAddresses) -> tuple[SqlServerTable, ...]:
    settings = config.store
    names = SQL_SERVER_KINDS[settings.kind].table_names(settings.endpoint, settings.table_prefix)
    if settings.delayed_table is not None:
        names = [settings.delayed_table]
    catalog = addresses.default_catalog
    return tuple(SqlServerTable(catalog, settings.schema_name, name) for name in names)


def _addresses(connection: QueueConnection) -> SqlServerAddresses:
    store = connection.config.store
    dsn = connection.dsn or store.dsn
    schema = connection.schema_in("sqlserver")
    return SqlServerAddresses(store.endpoint, schema, database_of(dsn.get_secret_value()))
