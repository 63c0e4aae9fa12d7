"""Timeouts of SQL persistence as they are configured: which server, which table, which settings."""

import re
from typing import Any

import pytest

from duesweep import Duesweep
from duesweep.config import Config, load
from duesweep.config.adapters.context import store_of, sweep_context
from duesweep.core.address import SqlServerTable, TableName
from duesweep.core.errors import ConfigError
from duesweep.operations.doctor import route_findings

POSTGRESQL = "postgresql://sweeper:s3cret@db.example:5432/sales"
SQL_SERVER = "Server=db.example,1433;Database=sales;Uid=sweeper;Pwd=s3cret"


def _settings(dsn: str = POSTGRESQL, **more: str) -> list[str]:
    settings = {"store.kind": "sql-persistence", "store.dsn": dsn, "store.endpoint": "Sales.Orders"}
    others = {name.replace("__", "."): value for name, value in more.items()}
    settings |= {"ledger.root": "/ledger"} | others
    return [f"{name}={value}" for name, value in settings.items()]


def _config(dsn: str = POSTGRESQL, **more: str) -> Config:
    return load(None, _settings(dsn, **more))


def _store(dsn: str = POSTGRESQL, **more: str) -> Any:
    return store_of(_config(dsn, **more))


@pytest.mark.parametrize(
    ("dsn", "dialect"),
    [
        (POSTGRESQL, "postgresql"),
        ("postgres://db.example/sales", "postgresql"),
        ("host=db.example dbname=sales user=sweeper", "postgresql"),
        ("user = sweeper password='a;b' dbname=sales", "postgresql"),
        ("service=sales", "postgresql"),
        ("postgresql://db.example/sales?options=-c%20server%3Dy", "postgresql"),
        (SQL_SERVER, "sqlserver"),
        ("server=db.example;database=sales", "sqlserver"),
        ("Driver={ODBC Driver 18 for SQL Server};Server=db.example;Database=sales", "sqlserver"),
        ("Database=sales; Network Address = db.example", "sqlserver"),
        ("DSN=sales;Database=sales", "sqlserver"),
    ],
)
def test_form_of_the_dsn_says_which_server_it_is(dsn: str, dialect: str) -> None:
    assert _config(dsn).store.dialect == dialect


@pytest.mark.parametrize("dsn", ["sales", "Database=sales;Pwd=s3cret", "mysql://s3cret@db.example"])
def test_dsn_of_neither_form_is_refused_without_its_text(dsn: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^--set store\.dsn: store\.dsn is wrong: it is neither"
    ) as refusal:
        _config(dsn)

    assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("settings", "table"),
    [
        ({}, "Sales_Orders_TimeoutData"),
        ({"store__table_prefix": "Old."}, "Old.TimeoutData"),
        ({"store__table_prefix": ""}, "TimeoutData"),
        ({"store__delayed_table": "Late"}, "Late"),
        ({"store__table_prefix": "Old.", "store__delayed_table": "Late"}, "Late"),
    ],
)
def test_table_is_named_as_sql_persistence_does(settings: dict[str, str], table: str) -> None:
    own = settings | {"store__schema": "nsb"}

    assert _store(POSTGRESQL, **own).delayed == TableName("nsb", table)
    assert _store(SQL_SERVER, **own).candidates == (SqlServerTable("sales", "nsb", table),)


def test_schema_and_source_are_those_of_the_server() -> None:
    assert _store(POSTGRESQL).source == "sales/public.Sales_Orders_TimeoutData"
    assert _store(SQL_SERVER).source == "sales/dbo.Sales_Orders_TimeoutData"
    assert _store(SQL_SERVER, store__name="old").source == "old"


@pytest.mark.parametrize("dsn", [POSTGRESQL, SQL_SERVER])
def test_queues_of_the_stores_server_share_its_transaction(dsn: str) -> None:
    assert sweep_context(_config(dsn)).queue.shares_transaction


@pytest.mark.parametrize("dsn", [POSTGRESQL, SQL_SERVER])
def test_endpoints_own_queue_is_neither_created_nor_asked_for(dsn: str) -> None:
    config = _config(dsn, retry__error_queue="error")

    script = Duesweep(config).setup_script()

    assert "duesweep_journal" in script
    assert "error" in script
    assert "TimeoutData" not in script
    assert "[Sales.Orders]" not in script
    assert '"Sales.Orders"' not in script
    assert store_of(config).own_queue == "Sales.Orders"
    assert route_findings(config) == []


@pytest.mark.parametrize(
    ("dsn", "settings", "words"),
    [
        *(
            (dsn, {"store__writer_time_zone": "UTC"}, "store.writer_time_zone has no effect")
            for dsn in (POSTGRESQL, SQL_SERVER)
        ),
        (SQL_SERVER, {"store__number_of_retries": "1"}, "store.number_of_retries has no effect"),
        (SQL_SERVER, {"sweep__batch_rows": "1001"}, "set it to at most 1000"),
        (
            *(POSTGRESQL, {"store__jdbc_url": "jdbc:x"}),
            "store.jdbc_url has no effect on a store of kind sql-persistence in PostgreSQL",
        ),
        *(
            (
                *(dsn, {"store__kind": kind, "store__table_prefix": "Old."}),
                f"store.table_prefix has no effect on a store of kind {kind}",
            )
            for dsn, kind in ((POSTGRESQL, "postgresql"), (SQL_SERVER, "msmq"))
        ),
    ],
)
def test_setting_that_cannot_be_meant_is_refused(
    dsn: str, settings: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        _config(dsn, **settings)


def test_settings_that_mean_something_are_taken() -> None:
    store = _store(SQL_SERVER, store__jdbc_url="jdbc:sqlserver://db.example")
    assert store.jdbc_url == "jdbc:sqlserver://db.example"
    assert _config(POSTGRESQL, sweep__batch_rows="5000", retry__max_attempts="2")


@pytest.mark.parametrize(
    ("dsn", "kind", "words"),
    [
        (POSTGRESQL, "sqlserver", "the store is in PostgreSQL; give it a dsn"),
        (SQL_SERVER, "postgresql", "the store is in SQL Server; give it a dsn"),
    ],
)
def test_queues_of_the_other_server_need_a_dsn(dsn: str, kind: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        sweep_context(_config(dsn, queues__default__kind=kind))
