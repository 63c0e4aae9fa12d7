"""Both transports: PostgreSQL always, SQL Server where there is one."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from duesweep.core.address import SqlServerTable, TableName
from duesweep.queues.operations import TransportSession, open_session
from duesweep.wiring import operations
from support.endpoint import Endpoint
from support.operations.subjects import HAS_SERVER, Subject

if TYPE_CHECKING:
    from support.sqlserver_server import SqlServerEndpoint

# Without a server these tests are not there twice; test_sqlserver_tables.py says in one line why.
TRANSPORTS = ["postgresql", *(["sqlserver"] if HAS_SERVER else [])]


@pytest.fixture
def postgresql_subject(endpoint: Endpoint) -> Subject:
    """Endpoint Sales.Orders in a database of its own, with its tables."""
    endpoint.set_up()

    def run(text: str) -> list[Any]:
        with psycopg.RawCursor(endpoint.server.admin) as cursor:
            cursor.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    return Subject(
        transport=operations.transport(endpoint.config()),
        config_file=endpoint.config_file,
        run=run,
        address=lambda name: str(TableName(endpoint.schema, name)),
        quoted=str,
        delayed=str(endpoint.delayed),
        past="now() AT TIME ZONE 'UTC' - interval '1 hour'",
    )


@pytest.fixture
def sqlserver_subject(sqlserver_endpoint: "SqlServerEndpoint") -> Subject:
    """Endpoint Sales.Orders in a schema of its own, with its tables."""
    sqlserver_endpoint.set_up()

    def run(text: str) -> list[Any]:
        with sqlserver_endpoint.server.database.admin.cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall()) if cursor.description else []

    def quoted(table: object) -> str:
        assert isinstance(table, SqlServerTable)
        return table.sql

    server = sqlserver_endpoint.server
    return Subject(
        transport=operations.transport(sqlserver_endpoint.config()),
        config_file=sqlserver_endpoint.config_file,
        run=run,
        address=lambda name: f"{name}@[{sqlserver_endpoint.schema}]",
        quoted=quoted,
        delayed=sqlserver_endpoint.delayed,
        past="DATEADD(hour, -1, GETUTCDATE())",
        stand_in=server.unsupported("neither skips locked rows nor locks what it reads")
        if server.stand_in
        else "",
    )


@pytest.fixture(params=TRANSPORTS)
def subject(request: pytest.FixtureRequest) -> Subject:
    """Each transport in turn."""
    found: Subject = request.getfixturevalue(f"{request.param}_subject")
    return found


@pytest.fixture
def skipping(subject: Subject) -> Subject:
    """Each transport whose server skips locked rows."""
    if subject.stand_in:
        pytest.skip(subject.stand_in)
    return subject


@pytest.fixture
def session(subject: Subject) -> Iterator[TransportSession]:
    """A session."""
    with open_session(subject.transport) as opened:
        yield opened
