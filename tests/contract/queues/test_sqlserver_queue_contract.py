"""The contract of a queue, kept on SQL Server."""

from dataclasses import replace

import pytest

from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Timeouts
from duesweep_testing.contract import QueueContract
from support.contract.queue_steps import LOCK_WAIT_SECONDS
from support.contract.queue_subjects import QueueTablesUnderTest
from support.sqlserver_server import SqlServer, SqlServerEndpoint


@pytest.fixture(autouse=True)
def _short_lock_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = replace(DEFAULT_TIMEOUTS.task, lock_seconds=LOCK_WAIT_SECONDS)
    monkeypatch.setattr(Timeouts, "task", limits)


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
