"""The contract of a queue, kept in memory and by queue tables; by a broker in another file."""

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from duesweep_testing.contract import QueueContract
from duesweep_testing.contract.memory import MemoryQueueUnderTest
from support.contract.queue_tables import QueueTablesUnderTest
from support.contract.store_subjects import OpenEndpoint
from support.sqlserver_server import SqlServer, SqlServerEndpoint


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


class TestSqlServer(QueueContract):
    @pytest.fixture
    def subject(self, sqlserver_endpoint: SqlServerEndpoint) -> QueueTablesUnderTest:
        return QueueTablesUnderTest(sqlserver_endpoint)


class TestSqlServerInADatabaseOfItsOwn(QueueContract):
    @pytest.fixture
    def subject(
        self, sqlserver_endpoint: SqlServerEndpoint, sqlserver: SqlServer
    ) -> QueueTablesUnderTest:
        elsewhere = replace(sqlserver_endpoint, server=sqlserver.swapped())
        return QueueTablesUnderTest(sqlserver_endpoint, elsewhere)
