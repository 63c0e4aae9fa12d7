"""The contract of a queue, kept on SQL Server."""

from dataclasses import replace

import pytest
from contract.letters import LOCK_WAIT_SECONDS
from contract.sqlserver_subjects import SqlServerQueueUnderTest
from sqlserver_endpoint import SqlServerEndpoint
from sqlserver_server import SqlServer

from duesweep.drivers import sqlserver as sqlserver_driver
from duesweep.queues import sqlserver as sqlserver_queue
from duesweep.stores.sqlserver import store as sqlserver_store
from duesweep.testing.contract import QueueContract


@pytest.fixture(autouse=True)
def _short_lock_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = sqlserver_driver.TimeLimits(int(LOCK_WAIT_SECONDS * 1_000), statement_ms=60_000)
    for module in (sqlserver_queue, sqlserver_store):
        monkeypatch.setattr(module, "TASK_LIMITS", limits)


class TestSqlServer(QueueContract):
    @pytest.fixture
    def subject(self, sqlserver_endpoint: SqlServerEndpoint) -> SqlServerQueueUnderTest:
        return SqlServerQueueUnderTest(sqlserver_endpoint)


class TestSqlServerInADatabaseOfItsOwn(QueueContract):
    @pytest.fixture
    def subject(
        self, sqlserver_endpoint: SqlServerEndpoint, sqlserver: SqlServer
    ) -> SqlServerQueueUnderTest:
        elsewhere = replace(sqlserver_endpoint, server=sqlserver.swapped())
        return SqlServerQueueUnderTest(sqlserver_endpoint, elsewhere)
