"""Wiring of SQL Server: the transport's store, the MSMQ transport's, and queue tables."""

from collections.abc import Sequence

from duesweep.address import SqlServerAddresses, SqlServerTable
from duesweep.config import DEFAULT_SCHEMAS, Config
from duesweep.drivers.sqlserver import database_of
from duesweep.errors import ConfigError, MessageError
from duesweep.queues.sqlserver import SqlServerQueue
from duesweep.stores.msmq.shape import MSMQ_SHAPE, TABLE_SUFFIXES
from duesweep.stores.msmq.store import MsmqStore
from duesweep.stores.sqlserver.place import TRANSPORT_SHAPE
from duesweep.stores.sqlserver.setup import SqlServerSetup
from duesweep.stores.sqlserver.store import SqlServerStore
from duesweep.wiring.dialects import QueueConnection


def store(config: Config) -> SqlServerStore | MsmqStore:
    """The delayed table of the SQL Server transport, or the MSMQ transport's message store."""
    settings, is_msmq = config.store, config.store.kind == "msmq"
    dsn = settings.dsn.get_secret_value()
    addresses = SqlServerAddresses(settings.endpoint, settings.schema_name, database_of(dsn))
    candidates = _candidates(config, addresses)
    kind = MsmqStore if is_msmq else SqlServerStore
    first = candidates[0]
    return kind(
        dsn=dsn,
        source=settings.name or f"{first.catalog}/{first.schema}.{first.table}",
        candidates=candidates,
        addresses=addresses,
        batch_bytes=config.sweep.batch_bytes,
        jdbc_url=settings.jdbc_url.get_secret_value() if settings.jdbc_url else None,
        shape=MSMQ_SHAPE if is_msmq else TRANSPORT_SHAPE,
    )


def queue(connection: QueueConnection) -> SqlServerQueue:
    """The queue tables of a server."""
    config = connection.config
    if connection.dsn is None and config.store.dialect == "postgresql":
        raise ConfigError(
            f"{connection.setting} is of kind sqlserver, and the store is in PostgreSQL: give it "
            "a dsn"
        )
    return SqlServerQueue(
        _addresses(connection),
        config.store.dsn.get_secret_value(),
        connection.dsn.get_secret_value() if connection.dsn else None,
        setting=connection.setting,
        holds_own_queue=not connection.is_routed and config.store.kind != "msmq",
    )


def store_step(config: Config, queues: Sequence[str | None]) -> SqlServerSetup:
    """The store's tables, and queues beside it."""
    place = store(config)
    is_msmq = config.store.kind == "msmq"
    # An endpoint on MSMQ has its own queue there.
    beside = [address for address in queues if address is not None or not is_msmq]
    return SqlServerSetup(
        place.dsn,
        "store.dsn",
        _tables(place.addresses, beside),
        place,
        create_delayed="create_msmq_delayed" if is_msmq else "create_delayed",
    )


def queue_step(connection: QueueConnection, queues: Sequence[str | None]) -> SqlServerSetup:
    """Queues on a connection of their own."""
    dsn = connection.dsn.get_secret_value() if connection.dsn else ""
    tables = _tables(_addresses(connection), queues)
    return SqlServerSetup(dsn, f"{connection.setting}.dsn", tables)


def _candidates(config: Config, addresses: SqlServerAddresses) -> tuple[SqlServerTable, ...]:
    settings = config.store
    if settings.delayed_table is not None:
        names = [settings.delayed_table]
    elif settings.kind == "msmq":
        names = [settings.endpoint + suffix for suffix in TABLE_SUFFIXES]
    else:
        names = [f"{settings.endpoint}.Delayed"]
    catalog = addresses.default_catalog
    return tuple(SqlServerTable(catalog, settings.schema_name, name) for name in names)


def _addresses(connection: QueueConnection) -> SqlServerAddresses:
    store = connection.config.store
    beside = store.schema_name if store.dialect == "sqlserver" else DEFAULT_SCHEMAS["sqlserver"]
    dsn = connection.dsn or store.dsn
    return SqlServerAddresses(
        store.endpoint, connection.schema or beside, database_of(dsn.get_secret_value())
    )


def _tables(
    addresses: SqlServerAddresses, queues: Sequence[str | None]
) -> tuple[SqlServerTable, ...]:
    try:
        return tuple(addresses.parse(address) for address in queues)
    except MessageError as error:
        raise ConfigError(f"retry.error_queue: {error}; correct the setting") from error
