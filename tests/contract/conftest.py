"""Databases that the tests of a contract share, each test in schemas of its own: making a database
for every one of them takes most of the time.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duesweep.operations.demo.server import EmbeddedServer
from support.contract.store_subjects import OpenEndpoint
from support.pooler import pooler
from support.postgresql_server import PostgreSqlEndpoint, endpoint_in_postgresql


@pytest.fixture(scope="session")
def shared_database(server: EmbeddedServer) -> Callable[[str], str]:
    """The administrator's dsn of a database, by its default time zone."""
    made: dict[str, str] = {}

    def dsn_of(zone: str) -> str:
        if zone not in made:
            name = f"shared_{len(made)}"
            with psycopg.connect(server.dsn, autocommit=True) as admin:
                admin.execute(f"CREATE DATABASE {name}".encode())
                admin.execute(f"ALTER DATABASE {name} SET TimeZone = '{zone}'".encode())
            made[zone] = server.dsn_of(name)
        return made[zone]

    return dsn_of


@pytest.fixture(scope="session")
def pooled(
    server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], str]]:
    """The dsn of a database behind a pooler that lends each process for one transaction, and hands
    them round.
    """
    folder = tmp_path_factory.mktemp("pooler")
    # Its user has to read its files.
    for each in (folder, *folder.parents):
        if each != Path(each.anchor) and each.owner() == folder.owner():
            each.chmod(each.stat().st_mode | 0o055)
    with pooler(server.dsn, folder, "transaction", server_round_robin=1) as dsn:
        place = conninfo_to_dict(dsn)
        yield lambda of: make_conninfo(of, host=place["host"], port=place["port"])


@pytest.fixture
def open_endpoint(shared_database: Callable[[str], str], tmp_path: Path) -> OpenEndpoint:
    """Endpoint Sales.Orders in the database of a time zone, without tables as yet."""

    @contextmanager
    def opened(zone: str, schema: str | None = None) -> Iterator[PostgreSqlEndpoint]:
        dsn = shared_database(zone)
        with psycopg.connect(dsn, autocommit=True) as admin:
            yield endpoint_in_postgresql(
                dsn, tmp_path, admin, schema or f"s{uuid.uuid4().hex[:12]}"
            )

    return opened
