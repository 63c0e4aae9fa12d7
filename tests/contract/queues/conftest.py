"""Each queue in turn."""

import uuid
from collections.abc import Iterator

import pytest
from contract.letters import LOCK_WAIT_SECONDS
from contract.queue_subjects import MemoryQueueUnderTest, PostgreSqlQueueUnderTest, QueueUnderTest
from contract.store_subjects import OpenEndpoint
from endpoint import Endpoint

from duesweep.drivers.postgresql import TimeLimits
from duesweep.queues import postgresql as postgresql_queue
from duesweep.stores.postgresql import store as postgresql_store

QUEUES = (
    "memory",
    "memory, in a transaction of its own",
    "postgresql",
    "postgresql, in a database of its own",
)


@pytest.fixture(params=QUEUES)
def subject(
    request: pytest.FixtureRequest, open_endpoint: OpenEndpoint
) -> Iterator[QueueUnderTest]:
    """Each queue in turn, empty."""
    name: str = request.param
    has_own_transaction = "own" in name
    if name.startswith("memory"):
        yield MemoryQueueUnderTest(has_own_transaction)
        return
    schema = f"s{uuid.uuid4().hex[:12]}"
    # The database of another zone is another database.
    with open_endpoint("UTC", schema) as endpoint, open_endpoint("Etc/GMT", schema) as elsewhere:
        yield PostgreSqlQueueUnderTest(endpoint, elsewhere if has_own_transaction else None)


@pytest.fixture(autouse=True)
def _short_lock_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    milliseconds = int(LOCK_WAIT_SECONDS * 1_000)
    limits = TimeLimits(milliseconds, statement_ms=10_000, idle_in_transaction_ms=0)
    for module in (postgresql_queue, postgresql_store):
        monkeypatch.setattr(module, "TASK_LIMITS", limits)


@pytest.fixture
def endpoint(endpoint: Endpoint) -> Endpoint:
    """With its tables and queue `Billing`."""
    return endpoint.set_up("Billing")
