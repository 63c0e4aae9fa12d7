"""Wiring of PostgreSQL: the transport's store, SQL persistence's, and queue tables."""

from collections.abc import Sequence

from duesweep.config import Config
from duesweep.core.address import PostgreSqlAddresses, TableName
from duesweep.core.errors import ConfigError, MessageError
from duesweep.drivers.postgresql.session import database_of
from duesweep.queues.postgresql import PostgreSqlQueue
from duesweep.queues.tables import SUBSCRIPTION_TABLE
from duesweep.stores.base import Store
from duesweep.stores.kinds import POSTGRESQL_KINDS
from duesweep.stores.postgresql import POSTGRESQL
from duesweep.stores.setup import SqlSetup
from duesweep.stores.store import SqlStore
from duesweep.wiring.dialects import QueueConnection, timeouts_of


def store(config: Config) -> SqlStore:
    """The store of a kind of table in PostgreSQL."""
    settings, dsn = config.store, config.store.dsn.get_secret_value()
    kind = POSTGRESQL_KINDS[settings.kind]
    (table,) = kind.table_names(settings.endpoint, settings.table_prefix)
    delayed = TableName(settings.schema_name, settings.delayed_table or table)
    return SqlStore(
        dialect=POSTGRESQL,
        dsn=dsn,
        source=settings.name or f"{database_of(dsn)}/{delayed.schema}.{delayed.table}",
        candidates=(delayed,),
        addresses=PostgreSqlAddresses(settings.endpoint, delayed.schema),
        kind=kind,
        writer_time_zone=settings.writer_time_zone,
        timeouts=timeouts_of(config),
    )


def queue(connection: QueueConnection) -> PostgreSqlQueue:
    """The queue tables of a database."""
    if connection.dsn is None and connection.config.store.dialect == "sqlserver":
        raise ConfigError(
            f"{connection.setting} is of kind postgresql, but the store is in SQL Server",
            advice="give it a dsn",
        )
    return PostgreSqlQueue(
        _addresses(connection),
        connection.config.store.dsn.get_secret_value(),
        connection.dsn.get_secret_value() if connection.dsn else None,
        setting=connection.setting,
        holds_own_queue=not connection.is_routed and connection.config.store.knows_own_queue,
        timeouts=timeouts_of(connection.config),
    )


def holds(store: Store) -> bool:
    """Whether queues without a dsn can be in this store's transaction."""
    return isinstance(store, SqlStore) and store.dialect == POSTGRESQL


def queue_tables(
    connection: QueueConnection, addresses: Sequence[str | None]
) -> tuple[TableName, ...]:
    """The tables of queues on a connection."""
    grammar = _addresses(connection)
    try:
        return tuple(grammar.parse(address) for address in addresses)
    except MessageError as error:
        raise ConfigError(f"retry.error_queue: {error}", advice="correct the setting") from error


def store_step(
    config: Config, queues: tuple[TableName, ...], readable: tuple[TableName, ...]
) -> SqlSetup:
    """The step that creates the store's tables, and beside them the table of subscriptions and
    these queue tables, of which `readable` have readable bodies.
    """
    service = store(config)
    knows_transport = service.kind.has_own_queue
    return SqlSetup(
        dialect=POSTGRESQL,
        dsn=service.dsn,
        setting="store.dsn",
        queues=queues,
        store=service,
        timeouts=service.timeouts,
        subscriptions=service.addresses.parse(SUBSCRIPTION_TABLE) if knows_transport else None,
        readable=readable,
    )


def queue_step(connection: QueueConnection, queues: tuple[TableName, ...]) -> SqlSetup:
    """The step that creates these queues without a store's tables: on a connection of their own,
    or beside a custom store.
    """
    dsn = connection.dsn or connection.config.store.dsn
    setting = f"{connection.setting}.dsn" if connection.dsn else "store.dsn"
    return SqlSetup(
        dialect=POSTGRESQL,
        dsn=dsn.get_secret_value(),
        setting=setting,
        queues=queues,
        timeouts=timeouts_of(connection.config),
        readable=queues if connection.section.readable_body else (),
    )


def _addresses(connection: QueueConnection) -> PostgreSqlAddresses:
    store = connection.config.store
    return PostgreSqlAddresses(store.endpoint, connection.schema_in("postgresql"))
