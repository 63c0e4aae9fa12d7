"""The contract of a store, kept on SQL Server."""

from dataclasses import replace

import pytest

from duesweep_testing.contract import StoreContract
from duesweep_testing.contract.stores import FinishContract
from support.contract.store_subjects import DelayedTableUnderTest
from support.sqlserver_server import SqlServerEndpoint

# Names that exist: blanks, dots, quotes, brackets, braces, percent signs, 128 characters.
ODD_ENDPOINT = 'Sales."Or\'ders".[%s].{delayed}'
ODD_SCHEMA = 'the "odd" one\'s: 100%'
LONGEST_TABLE = "Late.Ünd" + 120 * "x"


def _odd(endpoint: SqlServerEndpoint) -> SqlServerEndpoint:
    name = ODD_ENDPOINT
    if endpoint.server.stand_in is not None:
        # It cannot parse the doubled bracket in a quoted name.
        name = name.translate({ord("["): "(", ord("]"): ")"})
    schema = f"{ODD_SCHEMA} {endpoint.schema}"
    return replace(endpoint, schema=schema, name=name, delayed_table=LONGEST_TABLE)


class TestSqlServer(StoreContract):
    @pytest.fixture
    def subject(self, sqlserver_endpoint: SqlServerEndpoint) -> DelayedTableUnderTest:
        return DelayedTableUnderTest(sqlserver_endpoint.set_up("Billing"))


class TestSqlServerWithOddNames(StoreContract):
    @pytest.fixture
    def subject(self, sqlserver_endpoint: SqlServerEndpoint) -> DelayedTableUnderTest:
        return DelayedTableUnderTest(_odd(sqlserver_endpoint).set_up("Billing"))


class TestTimeouts(StoreContract):
    @pytest.fixture
    def subject(self, sqlserver_endpoint: SqlServerEndpoint) -> DelayedTableUnderTest:
        return DelayedTableUnderTest(
            sqlserver_endpoint.of_kind("sql-persistence").set_up("Billing")
        )


class TestTimeoutsWithOddNames(FinishContract):
    @pytest.fixture
    def subject(self, sqlserver_endpoint: SqlServerEndpoint) -> DelayedTableUnderTest:
        endpoint = _odd(sqlserver_endpoint.of_kind("sql-persistence"))
        return DelayedTableUnderTest(endpoint.set_up("Billing"))


class TestMsmq(StoreContract):
    @pytest.fixture
    def subject(self, msmq_endpoint: SqlServerEndpoint) -> DelayedTableUnderTest:
        return DelayedTableUnderTest(msmq_endpoint.set_up("Billing"))
