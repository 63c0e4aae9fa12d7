"""PostgreSQL: the transport's store, SQL persistence's, queue tables, and their checks."""

from collections.abc import Sequence

from duesweep.config.adapters import Needs
from duesweep.config.adapters.sql import SqlAdapter
from duesweep.core.address import PostgreSqlAddresses
from duesweep.drivers.postgresql.session import database_of
from duesweep.queues.postgresql import COLUMNS, PostgreSqlQueue
from duesweep.stores.kinds import POSTGRESQL_KINDS
from duesweep.stores.postgresql import POSTGRESQL


class PostgreSqlAdapter(SqlAdapter):
    """Its stores find out in which time zone their writers write."""

    dialect, kinds, tables, columns = POSTGRESQL, POSTGRESQL_KINDS, PostgreSqlQueue, COLUMNS

    def database_of(self, dsn: str) -> str:
        return database_of(dsn)

    def addresses_in(self, endpoint: str, schema: str, dsn: str) -> PostgreSqlAddresses:  # noqa: ARG002 - no address names a database
        return PostgreSqlAddresses(endpoint, schema)

    def needs(self, dsns: Sequence[str]) -> Needs:  # noqa: ARG002 - whatever they are
        return Needs(["psycopg"])


ADAPTER = PostgreSqlAdapter()
