"""What SQL Server's queue tables have of their own: two shapes, and other databases."""

import pytest

from duesweep.core.errors import StoreError
from duesweep_transport.configured import transport_of
from duesweep_transport.tables import TransportSession
from support.sqlserver_server import SqlServerEndpoint
from support.transport import BILLING, HAS_SERVER, HOUR, fill, message, receive_all

if not HAS_SERVER:
    reason = "DUESWEEP_TEST_SQLSERVER names no SQL Server (docs/testing.md)"
    pytest.skip(reason, allow_module_level=True)

_NEWER = ("CorrelationId", "ReplyToAddress", "Recoverable")


def _make_newer(endpoint: SqlServerEndpoint, table: str) -> None:
    for column in _NEWER:
        endpoint.execute(f"ALTER TABLE {table} DROP COLUMN {column}")


def test_both_shapes_of_queue_tables_are_filled(sqlserver_endpoint: SqlServerEndpoint) -> None:
    endpoint = sqlserver_endpoint.set_up("Older", "Newer")
    _make_newer(endpoint, endpoint.addresses.parse("Newer").sql)

    with transport_of(endpoint.config()).connect() as session:
        for name in ("Older", "Newer"):
            queue = session.queue(name)
            queue.send(message(1, time_to_be_received=HOUR))
            queue.send(message(2))
            assert list(receive_all(queue)) == [1, 2]
        session.queue("Older").send(message(3))
    (row,) = endpoint.fetch(f"SELECT Recoverable FROM {endpoint.addresses.parse('Older').sql}")
    assert row.Recoverable


def test_shape_that_changes_costs_one_attempt(sqlserver_endpoint: SqlServerEndpoint) -> None:
    endpoint = sqlserver_endpoint.set_up(BILLING)

    with transport_of(endpoint.config()).connect() as session:
        queue = fill(session.queue(BILLING), 1)
        _make_newer(endpoint, endpoint.addresses.parse(BILLING).sql)
        with pytest.raises(StoreError):
            queue.send(message(2))
        queue.send(message(3))
        assert list(receive_all(queue)) == [1, 3]


def test_queue_in_another_database_is_used_by_its_three_part_name(
    sqlserver_endpoint: SqlServerEndpoint,
) -> None:
    endpoint = sqlserver_endpoint.set_up()
    catalog = endpoint.server.other.name
    address = f"{BILLING}@[{endpoint.schema}]@[{catalog}]"
    endpoint.create_queue(address)

    with transport_of(endpoint.config()).connect() as session:
        _use(session, address)
    assert endpoint.queue_rows(address) == []


def _use(session: TransportSession, address: str) -> None:
    queue = session.queue(address)
    for number in (1, 2, 3):
        queue.send(message(number))
    assert queue.peek() == 3
    with queue.receive():
        pass
    assert queue.purge(expired_only=True) == 0
    assert queue.purge() == 2


def test_columns_of_a_sender_of_version_1_are_received_as_headers(
    sqlserver_endpoint: SqlServerEndpoint,
) -> None:
    endpoint = sqlserver_endpoint.set_up(BILLING)
    table = endpoint.addresses.parse(BILLING).sql
    endpoint.execute(
        f"INSERT INTO {table} (Id, CorrelationId, ReplyToAddress, Recoverable, Headers)"
        " VALUES (NEWID(), 'c-1', 'Sales@[dbo]', 1, N'{\"n\":\"1\"}')"
    )

    with transport_of(endpoint.config()).connect() as session:
        queue = session.queue(BILLING)
        queue.send(message(2))
        with queue.receive() as old, queue.receive() as new:
            assert old is not None
            assert new is not None
            assert old.headers == {
                "n": "1",
                "NServiceBus.CorrelationId": "c-1",
                "NServiceBus.ReplyToAddress": "Sales@[dbo]",
            }
            assert isinstance(new.headers, dict)
            assert "NServiceBus.CorrelationId" not in new.headers


def test_receiving_from_a_table_that_lost_its_columns_costs_one_attempt(
    sqlserver_endpoint: SqlServerEndpoint,
) -> None:
    endpoint = sqlserver_endpoint.set_up(BILLING)

    with transport_of(endpoint.config()).connect() as session:
        queue = fill(session.queue(BILLING), 1)
        _make_newer(endpoint, endpoint.addresses.parse(BILLING).sql)
        with pytest.raises(StoreError), queue.receive():
            pass
        assert list(receive_all(queue)) == [1]
