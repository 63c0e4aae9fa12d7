"""Databases of SQL Server, for the doctor."""

from collections.abc import Callable, Sequence

from duesweep.checks.sqlserver import sqlserver_findings
from duesweep.config import Config
from duesweep.core.address import SqlServerTable
from duesweep.doctor.examine import Service
from duesweep.doctor.spark import Needs
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep.queues.sqlserver import sqlserver_queue
from duesweep.stores.checks_sqlserver import SqlServerQuestion, gather, waiting_destinations
from duesweep.wiring.dialects import QueueConnection, timeouts_of
from duesweep.wiring.sqlserver import store


def service(
    config: Config,
    connection: QueueConnection | None,
    queues: Callable[[], Sequence[tuple[str, SqlServerTable]]],
) -> Service:
    """The store's database, or a connection's own, with these queues, for the doctor."""
    own = connection.dsn if connection else None
    question = SqlServerQuestion(
        setting=f"{connection.setting}.dsn" if connection else "store.dsn",
        dsn=(own or config.store.dsn).get_secret_value(),
        queues=lambda: [(table, sqlserver_queue(role, table)) for role, table in queues()],
        store=store(config) if connection is None else None,
        timeouts=timeouts_of(config),
    )
    return Service(question.setting, lambda: sqlserver_findings(gather(question)))


def waiting(config: Config, most: int) -> Sequence[str]:
    """Destinations of the messages that are due first."""
    return waiting_destinations(store(config), most)


def needs(dsns: Sequence[str]) -> Needs:
    """What executors have to load: pyodbc, and the ODBC drivers that the dsns name."""
    drivers = [OdbcDsn.parse(dsn).pairs for dsn in dsns]
    named = {pairs.get("driver", "") for pairs in drivers if not {"dsn", "filedsn"} & set(pairs)}
    return Needs(["pyodbc"], sorted(named))
