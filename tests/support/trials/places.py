"""The places of a trial: which store, and which queues."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from duesweep.operations.demo.server import EmbeddedServer
from support.endpoint import Endpoint
from support.postgresql_server import (
    PostgreSqlEndpoint,
    PostgreSqlServer,
    create_database,
    drop_database,
)
from support.rabbitmq.broker import Broker
from support.trials.messages import REFUSED
from support.trials.services import Services
from support.trials.world import (
    BROKER,
    MOVED,
    NAMES,
    ONE_DATABASE,
    OTHER_DATABASE,
    OTHER_QUEUES,
    POOLED,
    SQL_SERVER,
    Copy,
    World,
    refuse_in_table,
    table_copies,
)

_POSTGRESQL_REFUSAL = rf"position('\x{REFUSED.hex()}'::bytea IN body) <> 1"
_SQL_SERVER_REFUSAL = f"SUBSTRING(Body, 1, {len(REFUSED)}) <> 0x{REFUSED.hex()}"
_QUEUES = (*NAMES, *OTHER_QUEUES)


def open_world(place: str, services: Services, folder: Path) -> AbstractContextManager[World]:
    return _PLACES[place](services, folder)


class LastingServer(PostgreSqlServer):
    """Its administrator connects again after the server was stopped."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn, psycopg.connect(dsn, autocommit=True))

    @property
    def admin(self) -> psycopg.Connection[Any]:  # type: ignore[override]
        raw: psycopg.Connection[Any] = self.__dict__["_raw"]
        try:
            raw.execute("SELECT")
        except psycopg.OperationalError:
            raw.close()
            self.__dict__["_raw"] = raw = psycopg.connect(self.dsn, autocommit=True)
        return raw

    @admin.setter
    def admin(self, raw: psycopg.Connection[Any]) -> None:
        self.__dict__["_raw"] = raw


@contextmanager
def _database(embedded: EmbeddedServer, folder: Path) -> Iterator[PostgreSqlEndpoint]:
    name = f"trial_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(embedded.dsn, autocommit=True) as admin:
        create_database(admin, name)
    server = LastingServer(embedded.dsn_of(name))
    yield Endpoint(server, folder, "public", "postgresql")
    server.admin.close()
    with psycopg.connect(embedded.dsn, autocommit=True) as admin:
        drop_database(admin, name)


@contextmanager
def _one_database(services: Services, folder: Path) -> Iterator[World]:
    with _database(services.server, folder) as endpoint:
        endpoint.set_up(*_QUEUES)
        refuse = refuse_in_table(endpoint, _POSTGRESQL_REFUSAL)
        yield World(ONE_DATABASE, endpoint, {}, table_copies(endpoint), refuse)


@contextmanager
def _behind_a_pooler(services: Services, folder: Path) -> Iterator[World]:
    """The pooler lends each process of the server for one transaction, and hands them round."""
    with _one_database(services, folder) as world:
        dsn = make_conninfo(world.endpoint.dsn, host="127.0.0.1", port=services.pooler_port)
        yield replace(world, place=POOLED, settings={"store__dsn": dsn})


@contextmanager
def _other_database(services: Services, folder: Path) -> Iterator[World]:
    with ExitStack() as stack:
        servers = (services.server, services.queue_server)
        endpoint, queues = (stack.enter_context(_database(one, folder)) for one in servers)
        endpoint.set_up(MOVED)
        queues.set_up(*_QUEUES)
        # As an administrator may have set it, for speed.
        name = queues.fetch("SELECT current_database() AS name")[0].name
        queues.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        settings = {"queues__default__dsn": queues.dsn}
        refuse = refuse_in_table(queues, _POSTGRESQL_REFUSAL)
        sent, moved = table_copies(queues), table_copies(endpoint)

        def read(address: str | None) -> Sequence[Copy]:
            return (moved if address == MOVED else sent)(address)

        yield World(OTHER_DATABASE, endpoint, settings, read, refuse)


@contextmanager
def _broker(services: Services, folder: Path) -> Iterator[World]:
    vhost = f"v{uuid.uuid4().hex[:12]}"
    broker = Broker(services.broker, vhost)
    with _database(services.server, folder) as endpoint:
        endpoint.set_up()
        for name in (*_QUEUES, endpoint.name):
            broker.create(name)
        broker.connection.close()
        settings: Mapping[str, object] = {
            "queues__default__kind": "rabbitmq",
            "queues__default__url": broker.url,
        }
        yield World(BROKER, endpoint, dict(settings), _broker_copies(services, vhost, endpoint))
    Broker(services.broker, vhost).close()


def _broker_copies(
    services: Services, vhost: str, endpoint: Endpoint
) -> Callable[[str | None], Sequence[Copy]]:
    def read(address: str | None) -> Sequence[Copy]:
        # A new connection: a trial may have ended all that there were.
        broker = Broker(services.broker, vhost)
        taken = broker.take(endpoint.name if address is None else address)
        broker.connection.close()
        return [Copy(one.message_id or f"body {body!r}", body) for _, one, body in taken]

    return read


@contextmanager
def _sql_server(services: Services, folder: Path) -> Iterator[World]:
    from support.sqlserver_server import endpoint_in_sqlserver  # noqa: PLC0415 - loads ODBC

    assert services.sql_server is not None
    endpoint = endpoint_in_sqlserver(services.sql_server, folder, f"s{uuid.uuid4().hex[:12]}")
    endpoint.set_up(*_QUEUES)
    refuse = refuse_in_table(endpoint, _SQL_SERVER_REFUSAL)
    # On a stand-in, the application locks of a source are the same in all databases.
    settings: dict[str, object] = {"store__name": f"trial {endpoint.schema}"}
    yield World(SQL_SERVER, endpoint, settings, table_copies(endpoint), refuse)
    services.sql_server.database.drop_tables()


_PLACES: Mapping[str, Callable[[Services, Path], AbstractContextManager[World]]] = {
    ONE_DATABASE: _one_database,
    OTHER_DATABASE: _other_database,
    BROKER: _broker,
    SQL_SERVER: _sql_server,
    POOLED: _behind_a_pooler,
}
