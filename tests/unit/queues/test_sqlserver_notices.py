"""Faults of queue tables on SQL Server, and whose fault it is that one is not created."""

from types import SimpleNamespace
from typing import Any

import pytest

from duesweep.core.address import SqlServerAddresses, SqlServerTable
from duesweep.core.errors import ConfigError, StoreError
from duesweep.drivers.statements import Named
from duesweep.queues.sqlserver import SqlServerQueueTable, queue_table_notices
from duesweep.stores.sqlserver import SQL_SERVER
from duesweep_transport.tables import TransportSession


class Catalog:
    """A session on a database with queue tables; each has these indexes."""

    def __init__(self, **tables: tuple[bool, list[str]]) -> None:
        self._tables = tables

    def rows_of_each(self, *named: Named, what: str) -> list[list[Any]]:  # noqa: ARG002 - for errors
        return [self._rows(name) for name, _, _ in named]

    def _rows(self, name: str) -> list[Any]:
        if name == "queue_tables":
            return [
                SimpleNamespace(schema="dbo", table=table, is_narrow=int(is_narrow))
                for table, (is_narrow, _) in self._tables.items()
            ]
        assert name == "queue_indexes"
        return [
            SimpleNamespace(schema="dbo", table=table.lower(), column_name=column)
            for table, (_, columns) in self._tables.items()
            for column in columns
        ]


BOTH = ["expires", "rowversion"]
TABLE = SqlServerTable("nsb", "dbo", "Billing")


def _notices(**tables: tuple[bool, list[str]]) -> list[str]:
    connection: Any = Catalog(**tables)
    return [str(notice) for notice in queue_table_notices(connection, "nsb")]


def test_tables_as_the_transport_creates_them_are_not_mentioned() -> None:
    assert _notices(Billing=(False, BOTH)) == []


def test_headers_of_one_code_page_are_told_with_the_statement_that_widens_them() -> None:
    (notice,) = _notices(Billing=(True, BOTH), Other=(False, BOTH))

    assert notice.startswith("[nsb].[dbo].[Billing]: Headers is varchar")
    assert "if endpoints send them, while sweeps write them as escapes" in notice
    assert "ALTER TABLE [nsb].[dbo].[Billing] ALTER COLUMN Headers nvarchar(max) NOT NULL" in notice


def test_missing_indexes_are_told_once_each_for_all_tables() -> None:
    several = {f"Q{n}": (False, ["rowversion"]) for n in range(5)}

    expires, row_version = _notices(**several, Billing=(False, ["expires"]))

    assert expires.startswith("[nsb].[dbo].[Q0], [nsb].[dbo].[Q1], [nsb].[dbo].[Q2] and 2 more")
    assert "begins with Expires: removing expired messages" in expires
    assert "run CREATE NONCLUSTERED INDEX [Index_Expires] ON [nsb].[dbo].[Q0]" in expires
    assert row_version.startswith("[nsb].[dbo].[Billing]: No index")
    assert "begins with RowVersion: its receiver" in row_version


def test_headers_for_one_code_page_are_sent_as_escapes_and_for_others_as_they_are() -> None:
    text = '{"a":"Grüße ☃"}'

    assert SqlServerQueueTable(TABLE, has_recoverable=True).headers(text) is text
    assert SqlServerQueueTable(TABLE, has_recoverable=True, is_narrow=True).headers(text) == (
        r'{"a":"Gr\u00fc\u00dfe \u2603"}'
    )


def test_shape_is_told_by_the_columns() -> None:
    older = SqlServerQueueTable.of(TABLE, {"Recoverable": "bit", "Headers": "nvarchar"})
    narrow = SqlServerQueueTable.of(TABLE, {"Headers": "varchar"})

    assert (older.has_recoverable, older.is_narrow) == (True, False)
    assert (narrow.has_recoverable, narrow.is_narrow) == (False, True)


ADDRESSES = SqlServerAddresses("Sales.Orders", "dbo", "nsb")


class Refusing:
    """A connection on which every script fails."""

    def __init__(self, error: StoreError) -> None:
        self.error = error

    def script(self, _: str) -> None:
        raise self.error


def _create(error: StoreError) -> None:
    connection: Any = Refusing(error)
    session = TransportSession(connection, SQL_SERVER, ADDRESSES, None)
    session.create("create_queue", "queue", ADDRESSES.parse("Billing@[no such]"))


def test_what_the_server_refuses_for_good_is_told_with_the_schema() -> None:
    with pytest.raises(ConfigError) as caught:
        _create(StoreError("The specified schema name does not exist (2760)", transient=False))

    assert "[nsb].[no such].[Billing] cannot be created" in str(caught.value)
    assert "schema [no such] in database [nsb]" in str(caught.value)
    assert "(2760)" in str(caught.value)


def test_what_passes_is_no_fault_of_the_address() -> None:
    with pytest.raises(StoreError, match="busy"):
        _create(StoreError("busy", transient=True))
