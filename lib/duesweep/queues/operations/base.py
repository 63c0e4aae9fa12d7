"""What the operations need from a transport, for every database."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from duesweep.queues.operations.postgresql import PostgreSqlDialect, PostgreSqlTransport
    from duesweep.queues.operations.sqlserver import SqlServerDialect, SqlServerTransport

    # A database with an endpoint's queues, as a value, and one session of it. Each is imported only
    # where it is used: the driver of the other may be missing.
    Transport: TypeAlias = PostgreSqlTransport | SqlServerTransport
    QueueDialect: TypeAlias = PostgreSqlDialect | SqlServerDialect


@dataclass(frozen=True, slots=True)
class QueueStatements:
    """The names of the statements that send to a queue table and receive from it."""

    send: str = "send"
    receive: str = "receive"
