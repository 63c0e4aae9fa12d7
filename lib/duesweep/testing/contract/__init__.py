"""The contract of a store and of a queue as tests, for whoever writes one. Needs pytest.

Say in a class what the tests have to know of your store from outside of any session: all of
`StoreUnderTest` (`JsonHeaders` has three of its members for stores with JSON headers). Then inherit
the tests, and define the fixture `subject`, an empty store for each of them:

    from dataclasses import replace
    from datetime import timedelta

    import pytest
    from duesweep.testing.contract import Abilities, JsonHeaders, StoreContract, StoreUnderTest

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

A queue is tested in the same way, with `QueueUnderTest` and `QueueContract`; a broker that takes
back nothing with `BrokerUnderTest` and `BrokerContract`, which are parts of them. A whole example
of store and queue are `MemoryUnderTest` and `MemoryQueueUnderTest` in
`duesweep.testing.contract.memory`. A lock that a session of yours waits for has to time out within
some seconds: shorten it for the tests.

A part of a contract can be inherited alone, as in `TestMyClaims(ClaimContract)`; they are the bases
of the two classes. Failures show what was compared: pytest rewrites the assertions in here as well.
"""

import pytest

# Before they are imported, or their failures would say `AssertionError` only.
pytest.register_assert_rewrite(f"{__name__}.stores", f"{__name__}.queues")

from duesweep.testing.contract.queues import (  # noqa: E402 - see above
    BrokerContract,
    QueueContract,
)
from duesweep.testing.contract.stores import StoreContract  # noqa: E402 - see above
from duesweep.testing.contract.subjects import (  # noqa: E402 - see above
    REFUSED_BODY,
    Abilities,
    ArrivedMessages,
    BrokerUnderTest,
    JsonHeaders,
    QueueUnderTest,
    StoreUnderTest,
)
from duesweep.testing.contract.transactions import rolled_back  # noqa: E402 - see above

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
    "rolled_back",
]
