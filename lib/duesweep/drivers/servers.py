"""The servers of databases that hold stores and queue tables, as the settings know them. Folders
and modules have a server's name: `drivers/<name>`, `drivers/sql/<name>`, `queues/<name>.py`.
"""
# ruff: noqa: ARG002 - no server needs all that another one does

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from duesweep.core.policy import BATCH_ROWS, MAX_BATCH_ROWS
from duesweep.drivers.dsn import fits_npgsql, is_postgresql, is_sql_server
from duesweep.drivers.postgresql.dsn import for_libpq
from duesweep.drivers.sqlserver.dsn import OdbcDsn, split_jdbc_url

# Timeouts of NServiceBus's SQL persistence: a kind of store on each of these servers.
SQL_PERSISTENCE = "sql-persistence"
# The kinds of connections to queues.
QueueKind = Literal["postgresql", "sqlserver", "rabbitmq"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseServer:
    """A server that is known by the store of a user only.

    `kinds`: the kinds of stores that are on this server only. `title`: its name for people.
    `driver`: the module that executors need.
    `schema`: of tables without one. `batch_rows`: messages in a transaction, usually, and
    `most_batch_rows` at most. `spark_from`: this many due messages are worth a cluster's tasks, and
    `cold_spark_from` a Spark that this process would have to start, on the same cores
    (docs/performance.md). `machine_address`: the meaning of MSMQ's address Billing@HOST-2 there.
    `has_writers_zone`: the transport's Dues depend on their writers' sessions. `has_jdbc_url`: a
    setting gives the URL for Spark.
    """

    name: str = ""
    title: str = ""
    driver: str = ""
    kinds: tuple[str, ...] = ()
    schema: str = "public"
    batch_rows: int = MAX_BATCH_ROWS
    most_batch_rows: int | None = None
    # SQL Server takes ten times as long for a message as PostgreSQL, so there Spark catches up
    # sooner.
    spark_from: int = 50_000
    cold_spark_from: int = 50_000
    machine_address: str = "queue Billing in schema HOST-2"
    has_writers_zone: bool = False
    has_jdbc_url: bool = False

    def is_meant_by(self, dsn: str) -> bool:
        """Whether a dsn has this server's form; a text has the form of one server at most."""
        return False

    def takes(self, dsn: str) -> bool:
        """Whether a dsn can be this server's although it has another one's form."""
        return False

    def check_dsn(self, dsn: str) -> None:
        """Raise `DsnError` or `ConfigError` for a dsn that the driver cannot read, or would
        misread.
        """

    def check_jdbc_url(self, url: str) -> None:
        """Raise `ConfigError` for a URL that JDBC's driver cannot read, or would misread."""

    def odbc_drivers(self, dsns: Iterable[str]) -> Sequence[str]:
        """The ODBC drivers that these dsns name; "": the driver that came with duesweep."""
        return ()


class PostgreSqlServer(DatabaseServer):
    """URLs, keywords, and Npgsql's connection strings."""

    def is_meant_by(self, dsn: str) -> bool:
        return is_postgresql(dsn)

    def takes(self, dsn: str) -> bool:
        return fits_npgsql(dsn)

    def check_dsn(self, dsn: str) -> None:
        for_libpq(dsn)


class MicrosoftSqlServer(DatabaseServer):
    """ODBC strings, and SqlClient's connection strings."""

    def is_meant_by(self, dsn: str) -> bool:
        return is_sql_server(dsn)

    def check_dsn(self, dsn: str) -> None:
        OdbcDsn.parse(dsn)

    def check_jdbc_url(self, url: str) -> None:
        split_jdbc_url(url)

    def odbc_drivers(self, dsns: Iterable[str]) -> Sequence[str]:
        pairs = [OdbcDsn.parse(dsn).pairs for dsn in dsns]
        return sorted(
            {each.get("driver", "") for each in pairs if not {"dsn", "filedsn"} & set(each)}
        )


_ALL = (
    PostgreSqlServer(
        name="postgresql",
        title="PostgreSQL",
        driver="psycopg",
        kinds=("postgresql",),
        batch_rows=BATCH_ROWS,
        spark_from=200_000,
        cold_spark_from=2_000_000,
        machine_address='queue "Billing@HOST-2"',
        has_writers_zone=True,
    ),
    MicrosoftSqlServer(
        name="sqlserver",
        title="SQL Server",
        driver="pyodbc",
        kinds=("sqlserver", "msmq"),
        schema="dbo",
        most_batch_rows=MAX_BATCH_ROWS,
        has_jdbc_url=True,
    ),
)
SERVERS = {server.name: server for server in _ALL}
OF_A_USER = DatabaseServer()
# By the kinds of stores that name their server.
DIALECTS = {kind: server.name for server in _ALL for kind in server.kinds}
STORE_KINDS = (*DIALECTS, SQL_PERSISTENCE)


def dialect_of(dsn: str) -> str | None:
    """The name of the server whose form a dsn has; None if it has none."""
    return next((server.name for server in _ALL if server.is_meant_by(dsn)), None)
