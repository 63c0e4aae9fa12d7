"""PostgreSQL: the transport's store, SQL persistence's, queue tables, and their checks."""

from collections.abc import Sequence

from duesweep.config import Config
from duesweep.config.adapters import Needs, QueueConnection, named_by, timeouts_of
from duesweep.config.adapters.sql import SqlAdapter
from duesweep.core.address import PostgreSqlAddresses, TableName
from duesweep.drivers.postgresql.session import database_of
from duesweep.queues.postgresql import COLUMNS, PostgreSqlQueue
from duesweep.stores.kinds import POSTGRESQL_KINDS
from duesweep.stores.postgresql import POSTGRESQL
from duesweep.stores.store import SqlStore


class PostgreSqlAdapter(SqlAdapter):
    """Its stores find out in which time zone their writers write."""

    dialect, tables, columns = POSTGRESQL, PostgreSqlQueue, COLUMNS

    def addresses(self, connection: QueueConnection) -> PostgreSqlAddresses:
        schema = connection.schema_in("postgresql")
        with named_by(f"store.endpoint or {connection.setting}.schema"):
            return PostgreSqlAddresses(connection.config.store.endpoint, schema)

    def store(self, config: Config) -> SqlStore:
        settings, dsn = config.store, config.store.dsn.get_secret_value()
        kind = POSTGRESQL_KINDS[settings.kind]
        (table,) = kind.table_names(settings.endpoint, settings.table_prefix)
        named = "endpoint" if settings.delayed_table is None else "delayed_table"
        with named_by(f"store.schema or store.{named}"):
            delayed = TableName(settings.schema_name, settings.delayed_table or table)
        with named_by("store.endpoint"):
            addresses = PostgreSqlAddresses(settings.endpoint, delayed.schema)
        return SqlStore(
            dialect=POSTGRESQL,
            dsn=dsn,
            source=settings.name or f"{database_of(dsn)}/{delayed.schema}.{delayed.table}",
            candidates=(delayed,),
            addresses=addresses,
            kind=kind,
            writer_time_zone=settings.writer_time_zone,
            timeouts=timeouts_of(config),
        )

    def needs(self, dsns: Sequence[str]) -> Needs:  # noqa: ARG002 - whatever they are
        return Needs(["psycopg"])


ADAPTER = PostgreSqlAdapter()
