"""Wiring of the transports' own operations: finds the queues and the delayed table."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from duesweep.config import Config
from duesweep.core.errors import ConfigError
from duesweep.queues.operations.session import TransportSession, open_session
from duesweep.wiring.context import store
from duesweep.wiring.dialects import QueueConnection, check_shared_transaction, connections

if TYPE_CHECKING:
    from duesweep.queues.operations.base import Transport


__all__ = ["TransportSession", "session", "transport"]


def transport(config: Config, connection: str | None = None) -> "Transport":
    """The queue tables of a connection (None: the default one), with the endpoint's delayed table
    if it is in the same database. Connects to nothing.
    """
    found = connections(config)
    name = connection or ("default" if "default" in found else min(found))
    if name not in found or (connection is None and len(found) > 1 and name != "default"):
        raise ConfigError(
            "There are several connections with queues"
            if name in found
            else f"Unknown connection {name}",
            advice=f"name one of {', '.join(sorted(found))} with --connection",
        )
    if config.store.is_custom and found[name].is_beside:
        check_shared_transaction(found[name], store(config))
    makers = {"postgresql": _postgresql, "sqlserver": _sqlserver}
    if found[name].kind not in makers:
        raise ConfigError(
            f"queues.{name} has no queue tables: it is of kind {found[name].kind}",
            advice="use the commands of `duesweep rabbitmq`, or the broker's own tools",
        )
    return makers[found[name].kind](config, found[name])


def session(
    config: Config, connection: str | None = None
) -> AbstractContextManager[TransportSession]:
    """A session on the queue tables of a connection."""
    return open_session(transport(config, connection))


# Each function imports its own driver: the other driver may be missing.


def _postgresql(config: Config, connection: QueueConnection) -> "Transport":
    from duesweep.queues.operations.postgresql import PostgreSqlTransport  # noqa: PLC0415
    from duesweep.stores.zone import writer_time_zone  # noqa: PLC0415
    from duesweep.wiring import postgresql  # noqa: PLC0415

    queue = postgresql.queue(connection)
    dsn = queue.dsn or queue.store_dsn
    if queue.dsn is not None or config.store.kind != "postgresql":
        return PostgreSqlTransport(dsn, queue.addresses, timeouts=queue.timeouts)
    beside = postgresql.store(config)
    return PostgreSqlTransport(
        dsn,
        queue.addresses,
        beside.delayed,
        lambda session: beside.writer_time_zone or writer_time_zone(session, dsn, beside.delayed),
        queue.timeouts,
    )


def _sqlserver(config: Config, connection: QueueConnection) -> "Transport":
    from duesweep.queues.operations.sqlserver import SqlServerTransport  # noqa: PLC0415
    from duesweep.wiring import sqlserver  # noqa: PLC0415

    queue = sqlserver.queue(connection)
    is_beside = queue.dsn is None and config.store.kind == "sqlserver"
    delayed = sqlserver.store(config).candidates[0] if is_beside else None
    dsn = queue.dsn or queue.store_dsn
    return SqlServerTransport(dsn, queue.addresses, delayed, queue.timeouts)
