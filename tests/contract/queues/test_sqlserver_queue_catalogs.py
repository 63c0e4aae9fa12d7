"""Queues of SQL Server in another database of the server: in the store's own transaction."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from duesweep.core.address import bracket_name
from duesweep.core.message import Message
from duesweep.errors import QueueNotFoundError
from duesweep.queues.base import QueueSession
from duesweep.stores.base import TaskSession
from duesweep_testing.builders import delayed_row, message
from duesweep_testing.contract import roll_back
from support.sqlserver_server import SqlServerEndpoint


@pytest.fixture
def endpoint(sqlserver_endpoint: SqlServerEndpoint) -> SqlServerEndpoint:
    """With its tables and queue `Billing`."""
    return sqlserver_endpoint.set_up("Billing")


@pytest.fixture
def address(endpoint: SqlServerEndpoint) -> str:
    """The address of a queue `Billing` in the other database."""
    catalog = bracket_name(endpoint.server.other.name)
    return str(endpoint.create_queue(f"Billing@{bracket_name(endpoint.schema)}@{catalog}"))


@contextmanager
def _sessions(endpoint: SqlServerEndpoint) -> Iterator[tuple[TaskSession, QueueSession]]:
    context = endpoint.context()
    with context.store.open_task() as store, context.queue.open(store) as queue:
        yield store, queue


def _arrived(endpoint: SqlServerEndpoint, address: str) -> list[tuple[str, bytes | None]]:
    return [(row.headers, row.body) for row in endpoint.queue_rows(address)]


def _expected(*messages: Message) -> list[tuple[str, bytes | None]]:
    return [(m.headers_text, m.body) for m in messages]


def test_queue_in_another_database_takes_messages_beside_those_of_the_stores(
    endpoint: SqlServerEndpoint, address: str
) -> None:
    here, there = message(delayed_row(body=b"here")), message(delayed_row(body=b"there"))

    with _sessions(endpoint) as (store, queue), store.transaction():
        destination = queue.resolve(address)
        queue.deliver(queue.resolve("Billing"), [here])
        queue.deliver(destination, [there])

    assert str(destination) == address
    assert _arrived(endpoint, "Billing") == _expected(here)
    assert _arrived(endpoint, address) == _expected(there)


def test_what_was_delivered_to_another_database_goes_back_with_the_stores_transaction(
    endpoint: SqlServerEndpoint, address: str
) -> None:
    with _sessions(endpoint) as (store, queue), roll_back(store):
        queue.deliver(queue.resolve(address), [message()])

    assert _arrived(endpoint, address) == []


@pytest.mark.parametrize("catalog", ["[{other}]", "[nowhere]"])
def test_queue_that_is_not_in_its_database_is_the_messages_fault(
    endpoint: SqlServerEndpoint, catalog: str
) -> None:
    catalog = catalog.format(other=endpoint.server.other.name)

    with _sessions(endpoint) as (_, queue), pytest.raises(QueueNotFoundError, match="Billing"):
        queue.resolve(f"Billing@[dbo]@{catalog}")
