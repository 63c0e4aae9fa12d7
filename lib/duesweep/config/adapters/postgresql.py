"""PostgreSQL: the transport's store, SQL persistence's, queue tables, and their checks."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from duesweep.config import Config
from duesweep.config.adapters import Needs, QueueConnection, Service, parse_all, timeouts_of
from duesweep.core.address import PostgreSqlAddresses, TableName
from duesweep.core.errors import ConfigError
from duesweep.drivers.postgresql.session import database_of
from duesweep.queues.postgresql import COLUMNS, PostgreSqlQueue, postgresql_queue
from duesweep.stores.checks_postgresql import examine
from duesweep.stores.kinds import POSTGRESQL_KINDS
from duesweep.stores.postgresql import POSTGRESQL
from duesweep.stores.setup import SqlSetup
from duesweep.stores.store import SqlStore
from duesweep.stores.zone import writer_time_zone

if TYPE_CHECKING:
    from duesweep.queues.transport.session import Transport


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
    store = connection.config.store
    if connection.dsn is None and store.dialect == "sqlserver":
        raise ConfigError(
            f"{connection.setting} is of kind postgresql, but the store is in SQL Server",
            advice="give it a dsn",
        )
    return PostgreSqlQueue(
        _addresses(connection),
        store.dsn.get_secret_value(),
        connection.dsn.get_secret_value() if connection.dsn else None,
        setting=connection.setting,
        holds_own_queue=not connection.is_routed and store.knows_own_queue,
        timeouts=connection.timeouts,
    )


def queue_tables(
    connection: QueueConnection, addresses: Sequence[str | None]
) -> tuple[TableName, ...]:
    """The tables of queues on a connection."""
    return parse_all(_addresses(connection), addresses)


def setup_step(connection: QueueConnection, queues: tuple[TableName, ...]) -> SqlSetup:
    """The step that creates these queues without a store's tables."""
    return SqlSetup(
        dialect=POSTGRESQL,
        dsn=connection.server_dsn,
        setting=connection.server_setting,
        queues=queues,
        timeouts=connection.timeouts,
        readable=queues if connection.section.readable_body else (),
    )


def service(
    config: Config,
    connection: QueueConnection | None,
    queues: Callable[[], Sequence[tuple[str, TableName]]],
) -> Service:
    """The store's database, or a connection's own, with these queues, for the doctor."""
    setting = connection.server_setting if connection else "store.dsn"
    findings = partial(
        examine,
        connection.server_dsn if connection else config.store.dsn.get_secret_value(),
        setting,
        lambda: [postgresql_queue(role, table) for role, table in queues()],
        COLUMNS,
        store=store(config) if connection is None else None,
        timeouts=timeouts_of(config),
    )
    return Service(setting, findings)


def needs(dsns: Sequence[str]) -> Needs:  # noqa: ARG001 - whatever they are
    """What executors have to load."""
    return Needs(["psycopg"])


def transport(connection: QueueConnection) -> "Transport":
    """The queue tables, with the delayed table if it is beside them."""
    from duesweep.queues.transport.postgresql import postgresql_transport  # noqa: PLC0415 - no sweep

    tables = queue(connection)
    dsn = connection.server_dsn
    if connection.dsn is not None or connection.config.store.kind != "postgresql":
        return postgresql_transport(dsn, tables.addresses, timeouts=tables.timeouts)
    beside = store(connection.config)
    zone = beside.writer_time_zone
    return postgresql_transport(
        dsn,
        tables.addresses,
        beside.delayed,
        find_zone=lambda session: zone or writer_time_zone(session, dsn, beside.delayed),
        timeouts=tables.timeouts,
    )


def _addresses(connection: QueueConnection) -> PostgreSqlAddresses:
    store = connection.config.store
    return PostgreSqlAddresses(store.endpoint, connection.schema_in("postgresql"))
