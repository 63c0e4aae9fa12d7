"""The queue tables that a configuration names."""

from duesweep.config import Config
from duesweep.config.adapters import QueueConnection, connections, sql_adapter, timeouts_of
from duesweep.config.adapters.context import check_shared_transaction, store_of
from duesweep.core.errors import ConfigError
from duesweep_transport.tables import Transport


def transport_of(config: Config, connection: str | None = None) -> Transport:
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
    if found[name].kind == "rabbitmq":
        raise ConfigError(
            f"queues.{name} has no queue tables: it is of kind {found[name].kind}",
            advice="use the commands of `duesweep rabbitmq`, or the broker's own tools",
        )
    if config.store.is_custom:
        check_shared_transaction(found[name], store_of(config))
    return _transport(config, found[name])


def _transport(config: Config, connection: QueueConnection) -> Transport:
    of_kind = sql_adapter(connection.kind)
    of_kind.refuse_without_server(connection)
    is_beside = connection.dsn is None and config.store.kind == connection.kind
    return Transport(
        of_kind.tables.dialect,
        connection.server_dsn,
        of_kind.addresses(connection),
        of_kind.store(config) if is_beside else None,
        timeouts_of(connection.config),
    )
