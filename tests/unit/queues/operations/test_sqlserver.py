"""Creating tables on SQL Server: whose fault it is where the server refuses."""

from typing import Any

import pytest

from duesweep.core.address import SqlServerAddresses
from duesweep.core.errors import ConfigError, StoreError
from duesweep.queues.operations.sqlserver import SqlServerDialect, SqlServerTransport

ADDRESSES = SqlServerAddresses("Sales.Orders", "dbo", "nsb")


class Refusing:
    """A connection on which every script fails."""

    def __init__(self, error: StoreError) -> None:
        self.error = error

    def script(self, _: str) -> None:
        raise self.error


def _create(error: StoreError) -> None:
    connection: Any = Refusing(error)
    dialect = SqlServerDialect(connection, SqlServerTransport("Server=h", ADDRESSES))
    dialect.create("create_queue", "queue", ADDRESSES.parse("Billing@[no such]"))


def test_what_the_server_refuses_for_good_is_told_with_the_schema() -> None:
    with pytest.raises(ConfigError) as caught:
        _create(StoreError("The specified schema name does not exist (2760)", transient=False))

    assert "[nsb].[no such].[Billing] cannot be created" in str(caught.value)
    assert "schema [no such] in database [nsb]" in str(caught.value)
    assert "(2760)" in str(caught.value)


def test_what_passes_is_no_fault_of_the_address() -> None:
    with pytest.raises(StoreError, match="busy"):
        _create(StoreError("busy", transient=True))
