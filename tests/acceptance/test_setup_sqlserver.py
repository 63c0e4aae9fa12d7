"""The command `setup` on SQL Server: created and completed tables, and the output."""

import pytest

from duesweep.drivers.sqlserver.dsn import OdbcDsn
from support.commands import Ran
from support.sqlserver_server import SqlServerEndpoint


def _delayed(endpoint: SqlServerEndpoint) -> str:
    return endpoint.within(endpoint.rows.table(endpoint.name))


@pytest.fixture(params=["sqlserver", "msmq"])
def endpoint(
    request: pytest.FixtureRequest, sqlserver_endpoint: SqlServerEndpoint
) -> SqlServerEndpoint:
    return sqlserver_endpoint.of_kind(request.param)


def test_setup_creates_the_table_of_subscriptions_once(
    sqlserver_endpoint: SqlServerEndpoint,
) -> None:
    sqlserver_endpoint.server.create_schema(sqlserver_endpoint.schema)
    table = sqlserver_endpoint.table("SubscriptionRouting")

    created, again = (sqlserver_endpoint.run("setup") for _ in range(2))

    assert (created.code, again.code) == (0, 0)
    assert "created SubscriptionRouting@" in created.out
    assert "Everything exists already" in again.out
    assert sqlserver_endpoint.fetch(f"SELECT QueueAddress, Endpoint, Topic FROM {table}") == []


def test_setup_creates_an_index_on_due_that_a_table_lacks_and_no_second_one(
    endpoint: SqlServerEndpoint,
) -> None:
    endpoint.set_up()
    index = f"Index_{endpoint.rows.due}"
    endpoint.execute(f"DROP INDEX [{index}] ON {_delayed(endpoint)}")

    created, again = (endpoint.run("setup") for _ in range(2))

    assert created == Ran(0, f"created index {index} on {endpoint.delayed}\n", "")
    assert again == Ran(0, "Everything exists already.\n", "")


def test_setup_leaves_an_index_of_another_name_as_it_is(endpoint: SqlServerEndpoint) -> None:
    endpoint.set_up()
    delayed, column = _delayed(endpoint), endpoint.rows.due
    endpoint.execute(f"DROP INDEX [Index_{column}] ON {delayed}")
    endpoint.execute(f"CREATE INDEX [Of another name] ON {delayed} ([{column}])")

    assert endpoint.run("setup").out == "Everything exists already.\n"


def test_printed_setup_is_what_a_dba_can_run_twice_and_a_sweep_can_work_with(
    endpoint: SqlServerEndpoint,
) -> None:
    endpoint.server.create_schema(endpoint.schema)
    whole = endpoint.having(retry__error_queue="error", queues__default__readable_body=True)
    batches = whole.run("setup", "--print-sql").out.split("GO\n")

    for batch in [*batches, *batches]:
        endpoint.execute(batch)

    assert whole.run("setup").out == "Everything exists already.\n"


def test_database_that_does_not_exist_is_a_wrong_setting(
    sqlserver_endpoint: SqlServerEndpoint,
) -> None:
    pairs = OdbcDsn.parse(sqlserver_endpoint.dsn).pairs
    absent = sqlserver_endpoint.having(store__dsn=OdbcDsn(pairs | {"database": "absent"}).text())

    assert absent.run("doctor", "--no-spark").code == 3
    for command in ("sweep", "setup"):
        ran = absent.run(command)

        assert (ran.code, "absent" in ran.err) == (2, True)
        assert "Check user, password and database in the dsn" in ran.err
