"""What the tests of queues share."""

import pytest
from contract.letters import LOCK_WAIT_SECONDS
from endpoint import Endpoint

from duesweep.drivers.postgresql import TimeLimits
from duesweep.queues import postgresql as postgresql_queue
from duesweep.stores.postgresql import store as postgresql_store


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
