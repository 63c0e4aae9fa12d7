"""Each queue in turn."""

from collections.abc import Iterator

import psycopg
import pytest
from contract.queue_subjects import MemoryQueueUnderTest, PostgreSqlQueueUnderTest, QueueUnderTest
from endpoint import Endpoint

from duesweep.demo.server import EmbeddedServer
from duesweep.drivers.postgresql import TimeLimits
from duesweep.queues import postgresql as postgresql_queue
from duesweep.stores import postgresql as postgresql_store

QUEUES = (
    "memory",
    "memory, in a transaction of its own",
    "postgresql",
    "postgresql, in a database of its own",
)


@pytest.fixture(autouse=True)
def _short_lock_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = TimeLimits(lock_ms=300, statement_ms=10_000, idle_in_transaction_ms=0)
    for module in (postgresql_queue, postgresql_store):
        monkeypatch.setattr(module, "TASK_LIMITS", limits)


@pytest.fixture(params=QUEUES)
def subject(request: pytest.FixtureRequest) -> QueueUnderTest:
    """Each queue in turn, empty."""
    name: str = request.param
    if name.startswith("memory"):
        return MemoryQueueUnderTest(has_own_transaction="own" in name)
    endpoint = request.getfixturevalue("endpoint")
    elsewhere = request.getfixturevalue("elsewhere") if "own" in name else None
    return PostgreSqlQueueUnderTest(endpoint, elsewhere)


@pytest.fixture
def elsewhere(endpoint: Endpoint, server: EmbeddedServer) -> Iterator[Endpoint]:
    """The same endpoint's tables in another database."""
    name = f"{endpoint.admin.info.dbname}_queues"
    endpoint.execute(f"CREATE DATABASE {name}")
    dsn = server.dsn_of(name)
    with psycopg.connect(dsn, autocommit=True) as admin:
        yield Endpoint(dsn, endpoint.folder, admin)
    endpoint.execute(f"DROP DATABASE {name} WITH (FORCE)")
