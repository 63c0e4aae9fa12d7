"""The contracts of a store and of a queue, as tests for authors of such. Needs pytest.

Write a class that answers the tests' questions about your store, without using one of its
sessions: the members of `StoreUnderTest`. (For stores with JSON headers, `JsonHeaders` has three of
them.) Then inherit the tests, and define the fixture `subject`, an empty store for each test:

    from dataclasses import replace
    from datetime import timedelta

    import pytest
    from duesweep_testing.contract import Abilities, JsonHeaders, StoreContract, StoreUnderTest

    class MyStoreUnderTest(JsonHeaders):
        abilities = Abilities(tick=timedelta(milliseconds=1), has_infinite_due=False)
        own_queue = "Sales.Orders"

        def __init__(self, server: MyServer) -> None:
            self.server = server
            self.store = MyStore(server.address)
            self.queue = MyQueue(server.address)

        def load(self, rows):
            return [replace(row, key=self.server.insert(row)) for row in rows]

        def claim_keys(self, rows):
            return [row.key for row in rows]

        ...

    class TestMyStore(StoreContract):
        @pytest.fixture
        def subject(self, server: MyServer) -> StoreUnderTest:
            server.create("Billing")
            return MyStoreUnderTest(server)

A queue is tested in the same way, with `QueueUnderTest` and `QueueContract`. A broker that cannot
roll back is tested with `BrokerUnderTest` and `BrokerContract`, which are parts of them. Examples
are `MemoryUnderTest` and `MemoryQueueUnderTest` in `duesweep_testing.contract.memory`. When your
session waits for a lock, it has to time out within a few seconds: shorten the time for the tests.

You can inherit a part of a contract alone, as in `TestMyClaims(ClaimContract)`. The parts are the
bases of the two classes. Failures show the compared values: pytest rewrites these assertions too.
"""

import pytest

# This has to come before the imports. Otherwise failures would only say `AssertionError`.
pytest.register_assert_rewrite(f"{__name__}.stores", f"{__name__}.queues")

from duesweep_testing.contract.queues import (  # noqa: E402 - see above
    BrokerContract,
    QueueContract,
)
from duesweep_testing.contract.stores import StoreContract  # noqa: E402 - see above
from duesweep_testing.contract.subjects import (  # noqa: E402 - see above
    REFUSED_BODY,
    Abilities,
    ArrivedMessages,
    BrokerUnderTest,
    JsonHeaders,
    QueueUnderTest,
    StoreUnderTest,
)
from duesweep_testing.sweeps import roll_back  # noqa: E402 - see above

__all__ = [
    "REFUSED_BODY",
    "Abilities",
    "ArrivedMessages",
    "BrokerContract",
    "BrokerUnderTest",
    "JsonHeaders",
    "QueueContract",
    "QueueUnderTest",
    "StoreContract",
    "StoreUnderTest",
    "roll_back",
]
