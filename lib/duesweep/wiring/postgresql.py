"""Wiring of PostgreSQL: the transport's store and its queue tables."""

from collections.abc import Sequence

from duesweep.address import PostgreSqlAddresses, TableName
from duesweep.config import DEFAULT_SCHEMAS, Config
from duesweep.doctor.examine import Place
from duesweep.doctor.postgresql import postgresql_findings
from duesweep.doctor.spark import Needs
from duesweep.drivers.postgresql import database_of
from duesweep.errors import ConfigError, MessageError
from duesweep.queues.postgresql import PostgreSqlQueue
from duesweep.queues.shapes import postgresql_queue
from duesweep.stores.postgresql.facts import PostgreSqlQuestion, gather
from duesweep.stores.postgresql.setup import PostgreSqlSetup
from duesweep.stores.postgresql.shapes import store_tables
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


def queue_tables(
    connection: QueueConnection, addresses: Sequence[str | None]
) -> tuple[TableName, ...]:
    """The tables of queues on a connection."""
    grammar = _addresses(connection)
    try:
        return tuple(grammar.parse(address) for address in addresses)
    except MessageError as error:
        raise ConfigError(f"retry.error_queue: {error}; correct the setting") from error


def store_step(config: Config, queues: tuple[TableName, ...]) -> PostgreSqlSetup:
    """The store's tables, and these queues beside it."""
    place = store(config)
    return PostgreSqlSetup(place.dsn, "store.dsn", queues, place)


def queue_step(connection: QueueConnection, queues: tuple[TableName, ...]) -> PostgreSqlSetup:
    """These queues on a connection of their own."""
    dsn = connection.dsn.get_secret_value() if connection.dsn else ""
    return PostgreSqlSetup(dsn, f"{connection.setting}.dsn", queues)


def place(
    config: Config, connection: QueueConnection | None, queues: Sequence[tuple[str, TableName]]
) -> Place:
    """The store's database, or a connection's own, with these queues, for the doctor."""
    own = connection.dsn if connection else None
    beside = store(config) if connection is None else None
    question = PostgreSqlQuestion(
        setting=f"{connection.setting}.dsn" if connection else "store.dsn",
        dsn=(own or config.store.dsn).get_secret_value(),
        wanted=lambda role: [
            *(store_tables(beside, role) if beside else ()),
            *((table, postgresql_queue(name, table, role)) for name, table in queues),
        ],
        store=beside,
    )
    return Place(question.setting, lambda: postgresql_findings(gather(question)))


def needs(dsns: Sequence[str]) -> Needs:  # noqa: ARG001 - whatever they are
    """What executors have to load."""
    return Needs(["psycopg"])


def _addresses(connection: QueueConnection) -> PostgreSqlAddresses:
    store = connection.config.store
    beside = store.schema_name if store.dialect == "postgresql" else DEFAULT_SCHEMAS["postgresql"]
    return PostgreSqlAddresses(store.endpoint, connection.schema or beside)
