"""Both transports: PostgreSQL always, SQL Server if it is there."""

from collections.abc import Iterator
from typing import Any

import pytest

from duesweep_transport.tables import TransportSession
from support.endpoint import Endpoint
from support.transport import HAS_SERVER, transport_of

# Without a server these tests are not there twice; test_sqlserver_tables.py says in one line why.
FIXTURES = {"postgresql": "endpoint", **({"sqlserver": "sqlserver_endpoint"} if HAS_SERVER else {})}


@pytest.fixture(params=FIXTURES)
def subject(request: pytest.FixtureRequest) -> Endpoint[Any]:
    """Endpoint Sales.Orders of each transport in turn, with its tables."""
    endpoint: Endpoint[Any] = request.getfixturevalue(FIXTURES[request.param])
    return endpoint.set_up()


@pytest.fixture
def skipping(subject: Endpoint[Any]) -> Endpoint[Any]:
    """Each transport whose server skips locked rows."""
    if not subject.server.abilities.skips_locked:
        pytest.skip(subject.server.unsupported("neither skips locked rows nor locks what it reads"))
    return subject


@pytest.fixture
def session(subject: Endpoint[Any]) -> Iterator[TransportSession]:
    with transport_of(subject).connect() as opened:
        yield opened
