"""Notices and actions of a sweep on SQL Server for tables that are not as they should be."""

import json

import pytest

from support.sqlserver_server import SqlServerEndpoint

SNOW = '{"Weather":"☃ Grüße","NServiceBus.SqlServer.ForwardDestination":"Narrow"}'


def _sweep(endpoint: SqlServerEndpoint) -> list[str]:
    """Sweep without Spark; the sentences on stderr."""
    ran = endpoint.run("sweep")
    assert ran.code == 0
    return [line for line in ran.err.splitlines() if line.startswith("duesweep:")]


def _beside(endpoint: SqlServerEndpoint, table: str) -> str:
    return f"[{endpoint.schema}].[{table}]"


@pytest.fixture
def endpoint(sqlserver_endpoint: SqlServerEndpoint) -> SqlServerEndpoint:
    sqlserver_endpoint.set_up()
    assert sqlserver_endpoint.run("queue", "create", "Narrow").code == 0
    return sqlserver_endpoint


def test_headers_for_a_varchar_column_arrive_whole_as_escapes_and_the_column_is_told_of(
    endpoint: SqlServerEndpoint,
) -> None:
    narrow = _beside(endpoint, "Narrow")
    endpoint.execute(f"ALTER TABLE {narrow} ALTER COLUMN Headers varchar(max)")
    endpoint.delay(headers=SNOW)

    told = _sweep(endpoint)

    (row,) = endpoint.fetch(f"SELECT Headers FROM {narrow}")
    assert row.Headers.isascii()
    assert json.loads(row.Headers) == {"Weather": "☃ Grüße"}
    (notice,) = [line for line in told if "Headers is varchar" in line]
    assert f"{narrow}: Headers" in notice
    assert "ALTER COLUMN Headers nvarchar(max) NOT NULL" in notice


def test_headers_for_other_columns_arrive_as_they_are_and_nothing_is_told(
    endpoint: SqlServerEndpoint,
) -> None:
    endpoint.delay(headers=SNOW)

    told = _sweep(endpoint)

    (row,) = endpoint.fetch(f"SELECT Headers FROM {_beside(endpoint, 'Narrow')}")
    assert row.Headers == '{"Weather":"☃ Grüße"}'
    assert told == []


def test_indexes_that_queues_and_the_delayed_table_lack_are_told_with_their_statements(
    endpoint: SqlServerEndpoint,
) -> None:
    endpoint.execute(f"DROP INDEX [Index_Expires] ON {_beside(endpoint, 'Narrow')}")
    endpoint.execute(f"DROP INDEX [Index_Due] ON {_beside(endpoint, 'Sales.Orders.Delayed')}")
    endpoint.delay(headers=SNOW)

    told = _sweep(endpoint)

    due, expires = told
    assert f"{endpoint.delayed}: No index that can be used begins with Due" in due
    assert due.endswith(f"CREATE NONCLUSTERED INDEX [Index_Due] ON {endpoint.delayed} ([Due])")
    assert "begins with Expires: " in expires
    assert "CREATE NONCLUSTERED INDEX [Index_Expires]" in expires
    for notice in told:
        endpoint.execute(notice.rpartition("Run ")[2])
    endpoint.delay(headers=SNOW)
    assert [line for line in _sweep(endpoint) if "No index" in line] == []
