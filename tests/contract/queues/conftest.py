"""Parts that the tests of queues share."""

from dataclasses import replace

import pytest

from duesweep.core.policy import DEFAULT_TIMEOUTS, Timeouts
from support.contract.queue_tables import LOCK_WAIT_SECONDS
from support.endpoint import Endpoint


@pytest.fixture(autouse=True)
def _short_lock_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = replace(DEFAULT_TIMEOUTS.task, lock_seconds=LOCK_WAIT_SECONDS)
    monkeypatch.setattr(Timeouts, "task", waits)


@pytest.fixture
def endpoint(endpoint: Endpoint) -> Endpoint:
    return endpoint.set_up("Billing")
