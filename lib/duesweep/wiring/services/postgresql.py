"""Databases of PostgreSQL, for the doctor."""

from collections.abc import Callable, Sequence

from duesweep.checks.postgresql import postgresql_findings
from duesweep.config import Config
from duesweep.core.address import TableName
from duesweep.doctor.examine import Service
from duesweep.doctor.spark import Needs
from duesweep.queues.postgresql import COLUMNS, postgresql_queue
from duesweep.stores.checks_postgresql import PostgreSqlQuestion, gather, waiting_destinations
from duesweep.wiring.dialects import QueueConnection, timeouts_of
from duesweep.wiring.postgresql import store


def service(
    config: Config,
    connection: QueueConnection | None,
    queues: Callable[[], Sequence[tuple[str, TableName]]],
) -> Service:
    """The store's database, or a connection's own, with these queues, for the doctor."""
    own = connection.dsn if connection else None
    question = PostgreSqlQuestion(
        setting=f"{connection.setting}.dsn" if connection else "store.dsn",
        dsn=(own or config.store.dsn).get_secret_value(),
        queues=lambda: [(table, postgresql_queue(role, table)) for role, table in queues()],
        queue_columns=COLUMNS,
        store=store(config) if connection is None else None,
        timeouts=timeouts_of(config),
    )
    return Service(question.setting, lambda: postgresql_findings(gather(question)))


def waiting(config: Config, most: int) -> Sequence[str]:
    """Destinations of the messages that are due first."""
    return waiting_destinations(store(config), most)


def needs(dsns: Sequence[str]) -> Needs:  # noqa: ARG001 - whatever they are
    """What executors have to load."""
    return Needs(["psycopg"])
