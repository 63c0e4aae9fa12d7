"""Queues of SQL Server in another database of the server: in the store's own transaction."""

import pytest

from duesweep.core.address import bracket_name
from duesweep.core.errors import QueueNotFoundError
from duesweep_testing.contract import roll_back
from support.contract import queue_tables
from support.sqlserver_server import SqlServerEndpoint


@pytest.fixture
def endpoint(sqlserver_endpoint: SqlServerEndpoint) -> SqlServerEndpoint:
    return sqlserver_endpoint.set_up("Billing")


@pytest.fixture
def address(endpoint: SqlServerEndpoint) -> str:
    """The address of a queue `Billing` in the other database."""
    catalog = bracket_name(endpoint.server.other.name)
    return str(endpoint.create_queue(f"Billing@{bracket_name(endpoint.schema)}@{catalog}"))


def test_queue_in_another_database_takes_messages_beside_those_of_the_stores(
    endpoint: SqlServerEndpoint, address: str
) -> None:
    here, there = queue_tables.with_bodies(b"here", b"there")

    with queue_tables.batch(endpoint) as (_, queue):
        destination = queue.resolve(address)
        queue.deliver(queue.resolve("Billing"), [here])
        queue.deliver(destination, [there])

    assert str(destination) == address
    assert queue_tables.lying_in(endpoint) == queue_tables.expected(here)
    assert queue_tables.lying_in(endpoint, address) == queue_tables.expected(there)


def test_what_was_delivered_to_another_database_goes_back_with_the_stores_transaction(
    endpoint: SqlServerEndpoint, address: str
) -> None:
    context = endpoint.context()

    with (
        context.store.open_task() as store,
        context.queue.open(store) as queue,
        roll_back(store),
    ):
        queue.deliver(queue.resolve(address), queue_tables.with_bodies(b"x"))

    assert queue_tables.lying_in(endpoint, address) == []


@pytest.mark.parametrize("catalog", ["[{other}]", "[nowhere]"])
def test_queue_that_is_not_in_its_database_is_the_messages_fault(
    endpoint: SqlServerEndpoint, catalog: str
) -> None:
    catalog = catalog.format(other=endpoint.server.other.name)

    with (
        queue_tables.batch(endpoint) as (_, queue),
        pytest.raises(QueueNotFoundError, match="Billing"),
    ):
        queue.resolve(f"Billing@[dbo]@{catalog}")
