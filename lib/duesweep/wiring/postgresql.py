"""Wiring of PostgreSQL: the transport's store and its queue tables."""

from collections.abc import Sequence

from duesweep.address import PostgreSqlAddresses, TableName
from duesweep.config import DEFAULT_SCHEMAS, Config
from duesweep.drivers.postgresql import database_of
from duesweep.errors import ConfigError, MessageError
from duesweep.queues.postgresql import PostgreSqlQueue
from duesweep.stores.postgresql.setup import PostgreSqlSetup
from duesweep.stores.postgresql.store import PostgreSqlStore
from duesweep.wiring.dialects import QueueConnection


def store(config: Config) -> PostgreSqlStore:
    """The delayed table of the PostgreSQL transport."""
    dsn = config.store.dsn.get_secret_value()
    delayed = TableName(
        config.store.schema_name,
        config.store.delayed_table or f"{config.store.endpoint}.Delayed",
    )
    return PostgreSqlStore(
        dsn=dsn,
        source=config.store.name or f"{database_of(dsn)}/{delayed.schema}.{delayed.table}",
        delayed=delayed,
        addresses=PostgreSqlAddresses(config.store.endpoint, delayed.schema),
        writer_time_zone=config.store.writer_time_zone,
    )


def queue(connection: QueueConnection) -> PostgreSqlQueue:
    """The queue tables of a database."""
    if connection.dsn is None and connection.config.store.dialect == "sqlserver":
        raise ConfigError(
            f"{connection.setting} is of kind postgresql, and the store is in SQL Server: give it "
            "a dsn"
        )
    return PostgreSqlQueue(
        _addresses(connection),
        connection.config.store.dsn.get_secret_value(),
        connection.dsn.get_secret_value() if connection.dsn else None,
        setting=connection.setting,
        holds_own_queue=not connection.is_routed and connection.config.store.kind != "msmq",
    )


def store_step(config: Config, queues: Sequence[str | None]) -> PostgreSqlSetup:
    """The store's tables, and queues beside it."""
    place = store(config)
    return PostgreSqlSetup(place.dsn, "store.dsn", _tables(place.addresses, queues), place)


def queue_step(connection: QueueConnection, queues: Sequence[str | None]) -> PostgreSqlSetup:
    """Queues on a connection of their own."""
    dsn = connection.dsn.get_secret_value() if connection.dsn else ""
    tables = _tables(_addresses(connection), queues)
    return PostgreSqlSetup(dsn, f"{connection.setting}.dsn", tables)


def _addresses(connection: QueueConnection) -> PostgreSqlAddresses:
    store = connection.config.store
    beside = store.schema_name if store.dialect == "postgresql" else DEFAULT_SCHEMAS["postgresql"]
    return PostgreSqlAddresses(store.endpoint, connection.schema or beside)


def _tables(addresses: PostgreSqlAddresses, queues: Sequence[str | None]) -> tuple[TableName, ...]:
    try:
        return tuple(addresses.parse(address) for address in queues)
    except MessageError as error:
        raise ConfigError(f"retry.error_queue: {error}; correct the setting") from error
