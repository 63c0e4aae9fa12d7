"""The contract of a queue, kept by every queue that needs no server from outside."""

import uuid
from collections.abc import Iterator

import pytest

from duesweep_testing.contract import QueueContract
from duesweep_testing.contract.memory import MemoryQueueUnderTest
from support.contract.queue_subjects import QueueTablesUnderTest
from support.contract.store_subjects import OpenEndpoint


class TestMemory(QueueContract):
    @pytest.fixture(params=[False, True], ids=["shared transaction", "its own transaction"])
    def subject(self, request: pytest.FixtureRequest) -> MemoryQueueUnderTest:
        return MemoryQueueUnderTest(has_own_transaction=request.param)


class TestPostgreSql(QueueContract):
    @pytest.fixture
    def subject(self, open_endpoint: OpenEndpoint) -> Iterator[QueueTablesUnderTest]:
        with open_endpoint("UTC") as endpoint:
            yield QueueTablesUnderTest(endpoint)


class TestPostgreSqlInADatabaseOfItsOwn(QueueContract):
    @pytest.fixture
    def subject(self, open_endpoint: OpenEndpoint) -> Iterator[QueueTablesUnderTest]:
        schema = f"s{uuid.uuid4().hex[:12]}"
        # The database of another zone is another database.
        with (
            open_endpoint("UTC", schema) as endpoint,
            open_endpoint("Etc/GMT", schema) as elsewhere,
        ):
            yield QueueTablesUnderTest(endpoint, elsewhere)
